"""One run, started and watched on this machine: what start_run.py and its helpers execute.

Other rooms import start_command (where a run is started: in an image or not), fates, find_batch,
neighbours and run_lines. The room imports records, images, study, schedulers, trainer and below.
"""
