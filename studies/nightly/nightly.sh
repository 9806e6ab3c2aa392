#!/usr/bin/env bash
# One night: train a study, archive it, add it to the history, judge it, make the website.
#   studies/nightly/nightly.sh FOLDER [CONFIG ...]     # of the study; studies/nightly/config.yaml
# Exit codes: that of `dlbench gate`; 2 if nothing could be judged. docs/nightly.md.
set -euo pipefail
clone=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:?expected a folder for archives, history and website}/archives"
here=$(cd "$1" && pwd)
shift
study=$(realpath "${@:-$clone/studies/nightly/config.yaml}")
night=$(date -u +%Y%m%dT%H%M%SZ)

dlbench() { # COMMAND ARGUMENTS: in this folder
    uv run --frozen --project "$clone" "$@" || return 2
}
workflow() {
    dlbench snakemake --snakefile "$clone/Snakefile" \
        --workflow-profile "$clone/profiles/default" "$@"
}

# Each night has a results folder of its own, so that all of its runs are trained.
mkdir "$here/$night"
cd "$here/$night"
mapfile -t configs <<<"$study"
workflow archive --configfile "${configs[@]}"
mv results/archive.zip "$here/archives/$night.zip"
cd "$here"
rm -r "$night"

history=$clone/studies/nightly/history.yaml
[ -e history.yaml ] && history=history.yaml
workflow site --configfile "$history" # adds the archive first
uv run --frozen --project "$clone" dlbench gate --configfile "$history" \
    --write-junit gate.xml --write-markdown gate.md
