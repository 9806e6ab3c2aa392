"""Fetch datasets and convert them to TFRecord shards with a manifest.

Needs the dataset's file in dlbench/data/datasets/. Makes
results/data/{dataset}/source/, the shards and manifest.json.
"""


rule data:
    """Every dataset of the study that is stored as shards."""
    input:
        list_of_remade,
        expand("results/data/{dataset}/manifest.json", dataset=PLAN.datasets),


rule fetch_dataset:
    """Fetch the source files and check their size and digest."""
    output:
        "results/data/{dataset}/source.json",
    log:
        "results/logs/fetch_dataset/{dataset}.log",
    benchmark:
        "results/benchmarks/fetch_dataset/{dataset}.tsv"
    priority: PREPARATION
    localrule: True
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        fetching=lambda w, output: PLAN.fetch_flags(w.dataset),
        folder=lambda w: f"results/data/{w.dataset}/source",
        own=dataset_folder,
    shell:
        program("dlbench fetch-dataset") + " {wildcards.dataset:q}"
        " --folder {params.folder:q} --stamp {output:q} {params.fetching} {params.own}"
        " 2>&1 | tee {log:q}"


rule convert_dataset:
    """Write the shards and, last, the manifest, which has the digest of the code."""
    input:
        source="results/data/{dataset}/source.json",
        remade=remade("results/data/{dataset}/manifest.json"),
    output:
        "results/data/{dataset}/manifest.json",
    log:
        "results/logs/convert_dataset/{dataset}.log",
    benchmark:
        "results/benchmarks/convert_dataset/{dataset}.tsv"
    priority: PREPARATION
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        check=lambda w, output: STUDY.data["check"],
        source=lambda w: f"results/data/{w.dataset}/source",
        folder=lambda w: f"results/data/{w.dataset}",
        recipe=lambda w, output: judgement.recipe(w.dataset),
        own=dataset_folder,
    shell:
        program("convert_dataset.py") + " {wildcards.dataset:q}"
        " --source {params.source:q} --output {params.folder:q}"
        " --code-sha256 {params.recipe:q} --check {params.check:q} {params.own} 2>&1 | tee {log:q}"


rule adopt_dataset:
    """Use the TFRecords of a store or of another tool in place; convert a user's text."""
    input:
        remade("results/data/{dataset}/manifest.json"),
    output:
        "results/data/{dataset}/manifest.json",
    log:
        "results/logs/adopt_dataset/{dataset}.log",
    benchmark:
        "results/benchmarks/adopt_dataset/{dataset}.tsv"
    wildcard_constraints:
        dataset=PLAN.adoptable_pattern,
    priority: PREPARATION
    localrule: True
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        folder=lambda w, output: str(PLAN.adopted[w.dataset].folder),
        digest=lambda w, output: PLAN.adopted[w.dataset].digest,
        own=dataset_folder,
    shell:
        program("dlbench adopt-dataset") + " {wildcards.dataset:q} {params.folder:q}"
        " --output {output:q} --code-sha256 {params.digest:q} {params.own} 2>&1 | tee {log:q}"


rule convert_pictures:
    """Convert a user's pictures, and list those that cannot be read."""
    input:
        remade("results/data/{dataset}/manifest.json"),
    output:
        "results/data/{dataset}/manifest.json",
    log:
        "results/logs/convert_pictures/{dataset}.log",
    benchmark:
        "results/benchmarks/convert_pictures/{dataset}.tsv"
    wildcard_constraints:
        dataset=phrases.any_of(stores.of_pictures(STUDY)),
    priority: PREPARATION
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        given=lambda w, output: json.dumps(STUDY.data["images"][w.dataset]),
        folder=lambda w: f"results/data/{w.dataset}",
    shell:
        program("dlbench convert-pictures") + " {wildcards.dataset:q} {params.given:q}"
        " --output {params.folder:q} 2>&1 | tee {log:q}"


ruleorder: convert_pictures > adopt_dataset > convert_dataset
