"""The result of a run: its record, run.json, made from its log, and whether it is valid.

run_record is the file; staleness says what a result is made from, judgement whether it is valid;
parse_run makes a record, sessions and sentinel_runs tell what was measured when. Others may import
all of it. It imports images, study, log, machine and common; of packages none, since start_run.py
writes records inside images.
"""
