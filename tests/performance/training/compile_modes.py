"""What it costs to compile a transformer as a whole or block by block, and what it gains.

    uv run dlbench environment envs/pytorch
    envs/pytorch/.venv/bin/python -m tests.performance.training.compile_modes

Our trainer under PyTorch trains a model in turns as it is, compiled as a whole, and block by block
(compile_mode), on one core, each time in a new process and without a cache of programs. Prints the
first step, in which PyTorch compiles, and the ratios of images per second over those of the run
that is not compiled. None has a target: CUDA graphs, the third mode, need a GPU (tests/gpu).
"""

import functools

from .. import bench
from ..bench import launched

HOW = {
    "not compiled": {},
    "compiled as a whole": {"compile": True},
    "block by block": {"compile": True, "compile_mode": "blocks"},
}


def main():
    parser = launched.parser(__doc__, "gpt_tiny")
    parser.set_defaults(batch=8)
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    run_of = functools.partial(launched.run_of, args, framework="pytorch", environment="pytorch")
    calls = {
        name: functools.partial(launched.first_step_and_rate, run_of(**fields))
        for name, fields in HOW.items()
    }
    found = bench.in_turns(args.rounds, calls)
    rates = {name: [rate for _, rate in each] for name, each in found.items()}
    for name, each in found.items():
        of = f"{args.model}, batch {args.batch}, {name}"
        figures.add(f"{of}: first step", [first_s for first_s, _ in each], "s")
        if name != "not compiled":
            gains = bench.ratios(rates[name], rates["not compiled"])
            figures.add(f"{of}, over not compiled", gains)
    both = rates["block by block"], rates["compiled as a whole"]
    figures.add(f"{args.model}, batch {args.batch}: blocks over a whole", bench.ratios(*both))


if __name__ == "__main__":
    main()
