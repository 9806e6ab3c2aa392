#!/bin/sh
# Cancels the jobs that Snakemake forgets; cluster-generic wants one word, so this is a file.
exec python -S workflow_scripts/cluster_job.py sidecar sge
