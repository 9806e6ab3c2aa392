"""Export runs to TensorBoard.

Needs results/tables/ and the trainer's environment, which has TensorBoard's writer. Makes
results/tensorboard/{run_id}/. Not part of `all`.
"""


rule tensorboard:
    """Every run of the study, for `tensorboard --logdir results/tensorboard`."""
    input:
        session_done,
        "results/tensorboard",


rule export_tensorboard:
    """Write the logs of all runs as event files of TensorBoard."""
    input:
        rules.collect_runs.output,
        environment=PLAN.export_environment,
        code=executed("export_tensorboard.py"),
    output:
        directory("results/tensorboard"),
    log:
        "results/logs/export_tensorboard.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        python=PLAN.export_python,
    shell:
        # The runs are no arguments: in a large study they would be too long.
        program("export_tensorboard.py", "{params.python:q}")
        + " --table results/tables/runs.csv --output {output:q} 2>&1 | tee {log:q} >&2"
