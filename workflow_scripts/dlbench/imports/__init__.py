"""Import other programs' logs into our tables, and have other programs train runs of a study.

- importers/ has one file for each kind of log, found by its name; patterns/ has those that need no
  Python.
- baseline_importers/ has one for each kind of log with measurements of a machine (baselines), and
  imports them.
- Programs and command use import_logs, baseline_importers, kinds and train_external; no other room
  imports this one.
"""
