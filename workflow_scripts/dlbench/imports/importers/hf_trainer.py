"""`trainer_state.json` of Hugging Face's Trainer: one JSON document, with `log_history`.

- `loss` is the mean over the steps since the entry before. No entry has a time of a step: rows of
  steps have losses alone. `epoch` has fractions; rows of evals have it rounded up.
- `train_runtime` is by the clock of one process, in s, from before the first step to after the
  last: evaluations, checkpoints and compiling are in it. The evaluations' own `eval_runtime` (that
  of each evaluation set where they have names, `eval_<name>_runtime`, or another prefix) is taken
  off if they come before the end of training; the rest over all steps is the mean time of a step,
  no warm-up left out. So its throughput is no more than that of the steps alone.
- `train_samples_per_second` is the items of the whole training (all epochs, or max_steps times
  the batch of all devices) over train_runtime. Times train_runtime these are the items, of a
  training that was stopped early the share of its steps; images_per_second is the items over the
  time without evaluations. The last batch of an epoch may be short: rate_uncertainty. A training
  that was resumed counts all its items and the time since it was resumed alone: its number is too
  high, and the document does not say so.
- `train_steps_per_second` is max_steps over train_runtime, with three decimals: a run for which
  that does not hold contradicts itself.
- `train_batch_size` is of one process, before gradients are accumulated: not imported.
- Without `train_runtime` the document is that of a checkpoint: a failed run, unless all steps are
  done.
- eval_accuracy is top-1 if it is from 0 to 1. Other scores are named in the notes. The split of a
  row of evals is `validation`, of sets with names their name.

Source: huggingface/transformers, trainer.py, trainer_callback.py and trainer_utils.py; documents
in yuanhuanghuang/quality (baselines/lrqa), with evaluations.
"""

import math
from collections.abc import Iterator

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import MAX_TIME_S, LeftOut, count, real
from dlbench.study import contradictions

FAMILY = "hf_trainer"
MARKS = ('"log_history"', '"global_step"')
MAX_BYTES = 2**28
KNOWN = {"epoch", "step", "loss", "learning_rate"}
KNOWN |= {"train_runtime", "train_samples_per_second", "train_loss", "total_flos", "grad_norm"}
RATES, RUNTIME = ("_per_second", "_runtime"), "_runtime"
TRAIN, EVAL = "train", "eval"  # prefixes
HALF_DIGIT = 0.0005  # of rates


def recognise(log: LogFile) -> bool:
    text = log.head_text
    return text.lstrip()[:1] == "{" and all(mark in text for mark in MARKS)


def read(log: LogFile) -> Iterator[Imported]:
    lines, size = [], 0
    for _, text in log.lines():
        lines.append(text)
        size += len(text)
        if size > MAX_BYTES:
            raise log.error(len(lines), "too long for a trainer_state.json")
    state = log_lines.from_json("\n".join(lines))
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise log.error(
            len(lines) or 1,
            "expected one JSON document with log_history, which ends here or before: was the file "
            "cut short?",
        )
    yield _imported(log, state, len(lines))


def _imported(log, state, last_line):
    step, total = count(state.get("global_step"), 0), count(state.get("max_steps"))
    run = Imported({"framework": "pytorch", "mode": "train"}, lines=(1, last_line))
    left_out, before, evaluated_s, ends = LeftOut(), 0, 0.0, []
    known, unknown = set(KNOWN), set()
    for entry in state["log_history"]:
        if not isinstance(entry, dict) or (at := count(entry.get("step"), 0)) is None:
            left_out.add(1, "an entry of log_history without a step")
            continue
        if "train_runtime" in entry:
            ends.append((entry, evaluated_s))
            evaluated_s = 0.0  # what is evaluated from here on is not in its time
        if (loss := log_lines.loss(entry.get("loss"))) is not None and at > before:
            run.steps.add(at, math.nan, loss, 0)
            before = at
        for prefix in _prefixes(entry):
            if row := _evaluation(entry, prefix, at):
                run.evals.append(row)
            evaluated_s += real(entry.get(f"{prefix}{RUNTIME}"), 0, MAX_TIME_S) or 0
            known |= {f"{prefix}_loss", f"{prefix}_accuracy"}
        unknown |= {name for name in entry if name not in known and not name.endswith(RATES)}
    if not (step or run.steps or run.evals):
        raise log.error(1, "no step, no loss and no evaluation in it: training had not begun")
    if epochs := _whole(state.get("num_train_epochs")):
        run.columns["epochs"] = epochs
    elif total:
        run.columns["steps"] = total
    if ends:
        _rate(run, *ends[-1], step, total)
        if len(ends) > 1:
            run.notes.append(f"{len(ends)} ends of training in it: the last one counts")
    elif step is not None and total and step < total:
        run.status, run.message = "failed", f"the state of a checkpoint at step {step} of {total}"
    if unknown:
        run.notes.append(f"left out: {log_lines.list_names(unknown)}")
    run.notes += left_out.notes()
    return run


def _whole(value):
    number = real(value, 1, 1e6)
    return int(number) if number and number.is_integer() else None


def _prefixes(entry):
    """The prefixes of the evaluations in an entry: eval, eval_<name>, or any with a runtime."""
    timed = {n.removesuffix(RUNTIME) for n in entry if n.endswith(RUNTIME)} - {TRAIN}
    if any(f"{EVAL}{ending}" in entry for ending in ("_loss", "_accuracy")):
        timed.add(EVAL)
    return sorted(timed)


def _evaluation(entry, prefix, step):
    accuracy = real(entry.get(f"{prefix}_accuracy"), 0, 1)
    values = {"loss": log_lines.loss(entry.get(f"{prefix}_loss")), "top1": accuracy}
    values = {name: value for name, value in values.items() if value is not None}
    if not values:
        return None
    if epoch := real(entry.get("epoch"), 0, 1e6):
        values["epoch"] = math.ceil(epoch)
    name = prefix.removeprefix(f"{EVAL}_")
    return {"split": "validation" if name == EVAL else name, "step": step, **values}


def _rate(run, end, evaluated_s, steps, total):
    runtime_s = real(end.get("train_runtime"), 0, MAX_TIME_S)
    per_second = real(end.get("train_samples_per_second"), 0)
    if not runtime_s or not steps or runtime_s <= evaluated_s:
        run.notes.append("no throughput: no steps, no train_runtime, or evaluations took longer")
        return
    run.columns["duration_s"] = runtime_s
    training_s = runtime_s - evaluated_s
    run.columns["step_time_mean_s"] = training_s / steps
    run.columns["steps_measured"] = steps
    _check_steps_per_second(run, end, runtime_s, total or steps)
    done = steps / total if total and steps < total else 1.0
    if per_second:
        run.columns["images_per_second"] = per_second * (runtime_s / training_s) * done
        doubt = HALF_DIGIT / per_second + run.columns.get("epochs", 0) / steps
        run.columns["rate_uncertainty"] = doubt
    if done < 1:
        run.notes.append(f"stopped at step {steps} of {total}: that share of the items counts")
    run.notes.append(
        f"times are train_runtime, {runtime_s:g} s, less {evaluated_s:g} s of evaluations: the "
        "first steps and checkpoints are in them; if training was resumed, the rate is too high"
    )


def _check_steps_per_second(run, end, runtime_s, steps):
    per_second = real(end.get("train_steps_per_second"), 0)
    allowed = contradictions.MAX_DIFFERENCE * steps + HALF_DIGIT * runtime_s
    if per_second and abs(per_second * runtime_s - steps) > allowed:
        run.columns["contradicts"] = (
            f"train_runtime is {runtime_s:g} s and train_steps_per_second {per_second:g}: these "
            f"are {per_second * runtime_s:.4g} steps, not {steps}"
        )
