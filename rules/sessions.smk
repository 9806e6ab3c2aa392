"""The session of a start: each start that trains is one.

Makes results/sessions/{session}.json, for which all runs wait; {session}.done once all runs have
their records; {session}.{bundle}.done for runs that share a job of a scheduler; and
{session}.remade.json, the list of existing files that are made again.
Each start has a new session, so Snakemake makes again what has the session's files as inputs.
"""

import json
import shlex

from dlbench.common import phrases
from dlbench.plan.plan import unfinished_session

# Patterns of the ids of sessions that can start, and that can end.
NEW = [PLAN.new_session["id"]] if PLAN.new_session else []
STARTING = phrases.any_of(NEW)
UNFINISHED = phrases.any_of([*NEW, *unfinished_session()])


rule start_session:
    """Start a session: cancel jobs of an earlier start, put aside logs that would be replaced."""
    output:
        "results/sessions/{session}.json",
    log:
        "results/logs/start_session/{session}.log",
    wildcard_constraints:
        session=STARTING,
    priority: PREPARATION + 1
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        session=lambda w, output: json.dumps(PLAN.new_session),
        leftover=lambda w, output: shlex.join(leftover_jobs()),
        sentinels=lambda w, output: json.dumps(
            [run.values() for run in PLAN.sentinels.runs]
        ),
        config=merged_config,
    shell:
        program("dlbench start-session") + " {params.session:q} --output {output:q}"
        " --sentinels {params.sentinels:q} --config-json {params.config:q} {params.leftover}"
        " 2>&1 | tee {log:q} >&2"


rule end_session:
    """End a session when all of its runs have records."""
    input:
        session_files,
        list_of_remade,
        run_records,
        ends_of_bundles,
    output:
        touch("results/sessions/{session}.done"),
    wildcard_constraints:
        session=UNFINISHED,
    localrule: True


rule end_bundle:
    """Join runs and baselines of a bundle: Snakemake submits connected jobs of a group as one."""
    input:
        lambda w: JOBS.results(w.bundle),
    output:
        temp(touch("results/sessions/{session}.{bundle}.done")),
    wildcard_constraints:
        bundle="bundle[0-9]+",
    group:
        lambda w: w.bundle
    resources:
        runtime=1,
        mem_mb=100,


rule list_remade:
    """List the existing files that this start makes again, as of data whose code changed."""
    output:
        "results/sessions/{session}.remade.json",
    log:
        "results/logs/list_remade/{session}.log",
    wildcard_constraints:
        session=STARTING,
    priority: PREPARATION + 1
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        content=lambda w, output: json.dumps({"paths": sorted(PLAN.remade)}),
    shell:
        START + "printf '%s\\n' {params.content:q} >{output:q} 2>{log:q}"
