"""FLOPs of a run and attainable rates of its device, for the summary of its record.

FLOPs are those of the model's forward pass, as the trainer counted them, times the passes of the
run's mode (dlbench/trainer/model_flops.py).
"""

from typing import Any

from dlbench.log import event_log
from dlbench.study.runs import Run
from dlbench.trainer import model_flops
from dlbench.trainer.reading import inputs

OF_A_MODEL = ("loss", "losses", "learning_rate", "learning_rates")  # fields of a step


def steps(start: dict[str, Any], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events `step` of a log; without loss and learning rate where the run has no model.

    Args:
        start: its run_start, {} if it has none.
    """
    if start.get("spec", {}).get("mode") != inputs.INPUT_ONLY:
        return events
    return [{k: v for k, v in event.items() if k not in OF_A_MODEL} for event in events]


def summary(run: Run, log: Any) -> dict[str, Any]:
    """The numbers of a run; None where its log is too old to have them.

    Args:
        log: the parse_run.RankLog of the first rank.
    """
    start = log.start
    forward, unknown = start.get("forward_flops_per_item"), start.get("flops_unknown")
    needed = start.get("model_flops_per_item")  # as another program states it
    needed = needed or (forward and forward * model_flops.PASSES[run.mode])
    again = start.get("recomputed_flops_per_item") if run.mode != "forward" else None
    return {
        "model_flops_per_item": needed,
        "hardware_flops_per_item": needed + again if needed and again else None,
        "values_per_item": start.get("forward_values_per_item"),
        "flops_unknown": "; ".join(unknown) if unknown else None,
        **_profile(log.profile),
        "attainable_tflops": log.calibration.get("tflops"),
        "attainable_gb_per_s": log.calibration.get("gb_per_s"),
        **({"compile_s": None} if run.mode == inputs.INPUT_ONLY else {}),  # nothing is compiled
    }


def _profile(profile):
    """What the event `profile` of a log says, if there is one."""
    if not profile:
        return {}
    return {
        "profiled_steps": profile.get("steps"),
        "trace_file": event_log.TRACE if profile.get("sha256") else None,
        "trace_unknown": profile.get("unknown"),
    }
