"""The history: campaigns of many dates and sites, and what changed between them.

Needs the archives and results folders that the config names under `history`. Makes
history/site=S/year=Y/, one file a session that is written once, results/history/added/, one small
file for each source that was added, the tables in results/history/, and results/site/, a website of
them. Not part of `all`.
Only sources that are new, or changed, are added: of the others no rule makes anything.
"""

from dlbench.history import sources

try:
    SOURCES = {
        source.name: source
        for source in sources.sources(
            config.get("history", []), config.get("machines", {})
        )
    }
except Error as error:
    raise WorkflowError(f"The config cannot be used:\n{error}") from None
NEW_SOURCES = [name for name, source in SOURCES.items() if not source.is_added()]


rule history:
    """The tables of the history; fails at the end if a source was refused."""
    input:
        tables=expand(
            "results/history/{table}.parquet",
            table=["campaigns", "series", "findings", "changes"],
        ),
    log:
        "results/logs/history.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        config=merged_config,
    shell:
        program("dlbench analyse-history")
        + " --refused {params.config:q} 2>&1 | tee {log:q} >&2"


rule site:
    """The website of the history: static pages, to open or to publish."""
    input:
        expand(
            "results/history/{table}.parquet",
            table=["campaigns", "series", "findings", "changes"],
        ),
        code=executed("dlbench/report/build_site.py"),
        looks=own_code.looks("pages", "report"),
    output:
        directory("results/site"),
    log:
        "results/logs/site.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        config=merged_config,
    shell:
        program("dlbench site") + " --output {output:q} --configfile {params.config:q}"
        " 2>&1 | tee {log:q} >&2"


rule add_campaign:
    """Verify one archive, or read one results folder, and add what is new of it."""
    output:
        "results/history/added/{source}.json",
    log:
        "results/logs/history/{source}.log",
    wildcard_constraints:
        source=phrases.any_of(NEW_SOURCES),
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        path=lambda w: SOURCES[w.source].path,
        options=lambda w: json.dumps(dict(SOURCES[w.source].options)),
    shell:
        program("dlbench add-campaign") + " {params.path:q}"
        " --options {params.options:q} 2>&1 | tee {log:q} >&2"


rule analyse_history:
    """Make the tables of the history, and look for changes in it."""
    input:
        lambda w: [source.receipt for source in SOURCES.values()],
        code=executed("dlbench/history/analyse_history.py"),
    output:
        "results/history/series.parquet",
        expand(
            "results/history/{table}.{kind}",
            table=["campaigns", "findings", "changes"],
            kind=["parquet", "csv"],
        ),
    log:
        "results/logs/analyse_history.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        machines=lambda w: json.dumps(config.get("machines", {})),
        # Files of others that were copied into the history, and marks of what was taken back.
        foreign=lambda w: sources.foreign_files(list(SOURCES.values())),
    shell:
        program("dlbench analyse-history")
        + " --machines {params.machines:q} 2>&1 | tee {log:q} >&2"
