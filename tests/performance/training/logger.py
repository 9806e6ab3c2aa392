"""What programs/logger/dlbench_log.py costs a step: beside the same loop without it, in turns.

    uv run python -m tests.performance.training.logger [--pairs 300] [--steps 4]

Prints, from interleaved rounds in one run:
- microseconds of CPU that the logger takes for a step with its loss, of empty steps (target: 20 at
  most); the same in windows of ten steps, and with waits for data timed;
- the speed of a loop with steps of 5 ms over that of the bare loop (target: 0.99 or better). There
  the caches hold other things when the logger is called. Pairs are short and many, since others
  use the machine, too.
"""

import functools
import sys
import tempfile
import time
from pathlib import Path

from .. import bench

sys.path.append(str(bench.REPOSITORY / "programs/logger"))
STEP_S = 0.005
EMPTY_STEPS = 2000


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=300, help="of loops with steps of 5 ms")
    parser.add_argument("--steps", type=int, default=4, help="of each of these loops")
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    with tempfile.TemporaryDirectory() as folder:
        measure(figures, args.pairs, args.steps, Path(folder))


def measure(figures, pairs, steps, folder):
    import dlbench_log

    logs = {name: dlbench_log.Log(folder / f"{name}.jsonl") for name in ("single", "tens", "work")}
    logs["tens"].window(10)
    empty, items = (lambda: None), range(EMPTY_STEPS)
    calls = {
        "bare": lambda: bare(empty, items),
        "single": lambda: logged(logs["single"], empty, items),
        "data": lambda: logged(logs["single"], empty, logs["single"].data(items)),
        "tens": lambda: logged(logs["tens"], empty, items),
    }
    taken = bench.in_turns(
        max(2, pairs // 30), {n: functools.partial(cpu_us, c) for n, c in calls.items()}
    )
    for name, words in (("single", ""), ("data", ", with data()"), ("tens", ", in windows of ten")):
        values = [ours - theirs for ours, theirs in zip(taken[name], taken["bare"], strict=True)]
        figures.add(f"a step{words}, CPU time", values, "us", at_most=20)
    work = made_work()
    calls = {
        "ours": functools.partial(seconds, lambda: logged(logs["work"], work, range(steps))),
        "bare": functools.partial(seconds, lambda: bare(work, range(steps))),
    }
    taken = bench.in_turns(pairs, calls)
    values = bench.ratios(taken["bare"], taken["ours"])
    figures.add("steps of 5 ms, speed over the bare loop's", values, at_least=0.99)


def bare(step, items):
    for _ in items:
        step()


def logged(log, step, items):
    for _ in items:
        with log.step():
            step()
            log.loss(0.5)


def made_work():
    """A function that computes for about STEP_S."""
    count, took_s = 1000, 0.0
    while took_s < STEP_S / 2:
        count *= 2
        took_s = seconds(functools.partial(sum, range(count)))
    return functools.partial(sum, range(int(count * STEP_S / took_s)))


def cpu_us(call):
    """Microseconds of CPU that a loop of EMPTY_STEPS takes for a step."""
    begun = time.process_time()
    call()
    return (time.process_time() - begun) / EMPTY_STEPS * 1e6


def seconds(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
