"""The environments of trainers, on bare metal and in containers.

Needs envs/{environment} (a locked uv project), or the source of an image in the config.
Makes the environment's .venv and results/environments/{environment}.json, which lists what is
installed; results/images/{image}/image.json, which names the image, and {form}.json beside it for
each runtime that takes it. Where an image or a form cannot be made, its file says why instead: the
runs that need it are skipped with that reason, the others go on, and the next start tries again.
"""


rule images:
    """Every environment of the study, and every image in the forms that its runs take."""
    input:
        list_of_remade,
        made=lambda w: PLAN.environments,
    log:
        "results/logs/report_images.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    shell:
        program("dlbench report-images") + " {input.made:q} 2>&1 | tee {log:q} >&2"


rule make_environment:
    """Install the locked packages; others that are installed, such as Horovod, stay."""
    input:
        lock=lambda w: str(trainer_environments.folder(w.environment) / "uv.lock"),
        remade=remade("results/environments/{environment}.json"),
    output:
        "results/environments/{environment}.json",
    log:
        "results/logs/make_environment/{environment}.log",
    benchmark:
        "results/benchmarks/make_environment/{environment}.tsv"
    priority: PREPARATION
    localrule: True
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    shell:
        program("dlbench environment") + ' "$(dirname {input.lock:q})"'
        " --output {output:q} 2>&1 | tee {log:q}"


rule make_image:
    """Build or pull an image, or take an existing one, once; then its digest identifies it."""
    input:
        remade("results/images/{image}/image.json"),
    output:
        "results/images/{image}/image.json",
    log:
        "results/logs/make_image/{image}.log",
    benchmark:
        "results/benchmarks/make_image/{image}.tsv"
    priority: PREPARATION
    localrule: True
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        settings=lambda w, output: json.dumps(
            STUDY.images.get(w.image, {}), sort_keys=True
        ),
        study=lambda w, output: STUDY.name,
    shell:
        program("dlbench make-image") + " {wildcards.image:q} --keep-failure"
        " --settings {params.settings:q} --study {params.study:q}"
        " --output {output:q} 2>&1 | tee {log:q}"


checkpoint prepare_image:
    """Convert an image to the form that a runtime takes, and inspect it from inside.

    The result decides whether Snakemake enters the image for a run, so this is a checkpoint.
    """
    input:
        image="results/images/{image}/image.json",
        remade=remade("results/images/{image}/{form}.json"),
    output:
        "results/images/{image}/{form}.json",
    log:
        "results/logs/prepare_image/{image}-{form}.log",
    benchmark:
        "results/benchmarks/prepare_image/{image}-{form}.tsv"
    wildcard_constraints:
        form="(?!image$)[A-Za-z0-9-]+",
    priority: PREPARATION
    localrule: True
    conda:
        "../envs/workflow.yaml"
    resources:
        bench=1,
    params:
        how=lambda w, output: shlex.join(
            run_command.prepare_image_arguments(PLAN, w.image, w.form)
        ),
    shell:
        program("dlbench prepare-image") + " {input.image:q} --keep-failure"
        " {params.how} --output {output:q} 2>&1 | tee {log:q}"
