"""The result of a run: its record, run.json, made from its log, and whether it is valid.

run_record is the file; parse_run makes it, run_status is the verdict on the run; judgement says
what a result is made from and whether it is valid; sessions tell what was measured when. Others may
import all of it. It imports images, study, log, machine and common; of packages none, since
start_run.py writes records inside images.
"""
