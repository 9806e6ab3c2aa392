#!/usr/bin/env bash
# One night: train a study, archive it, add it to the history, make the website, judge it.
#   studies/nightly/nightly.sh FOLDER [CONFIG ...] [-- OPTIONS OF SNAKEMAKE FOR THE TRAINING]
# FOLDER keeps archives, history and website; the study is studies/nightly/config.yaml, if none is
# given. Exit codes: 0 passed, 1 the gate failed, 2 something went wrong before. docs/history.md.
set -euo pipefail
clone=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:?expected a folder for archives, history and website}/archives"
here=$(cd "$1" && pwd)
shift
configs=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    configs+=("$(realpath -e "$1")") || exit 2
    shift
done
[ ${#configs[@]} -gt 0 ] || configs=("$clone/studies/nightly/config.yaml")
[ ! -e "$clone/site.yaml" ] || configs=("$clone/site.yaml" "${configs[@]}")
history=$clone/studies/nightly/history.yaml
[ ! -e "$here/history.yaml" ] || history=$here/history.yaml

export PATH="$clone/.uv/bin:$PATH" # where the README installs uv
run=(uv run --frozen --project "$clone")
snakemake=("${run[@]}" snakemake --snakefile "$clone/Snakefile"
    --workflow-profile "$clone/profiles/default")

# A results folder of this night's own, so that all of its runs are trained.
night=$(date -u +%Y%m%dT%H%M%SZ)
mkdir "$here/$night"
cd "$here/$night"
"${snakemake[@]}" archive "${@:2}" --configfile "${configs[@]}" || exit 2
mv results/archive.zip "$here/archives/$night.zip"
cd "$here"
rm -r "$night"

added=0
"${snakemake[@]}" history site --configfile "$history" || added=2
"${run[@]}" dlbench gate --configfile "$history" \
    --write-markdown gate.md || exit
exit $added
