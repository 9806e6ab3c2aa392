#!/bin/sh
# properties = {properties}
# How the job ended, for workflow_scripts/cluster_job.py; nothing is written where it is killed.
trap 'echo $? >.snakemake/cluster_jobs/$JOB_ID.end' EXIT
{exec_job}
