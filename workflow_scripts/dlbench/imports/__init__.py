"""Other programs' logs become rows of our tables, and other programs train runs of a study.

- importers/ has one file for each kind of log, found by its name.
- baseline_importers/ has the same for measurements of a machine, which become baselines.
- The programs use import_logs, import_baselines, train_external and finding; no other room imports
  this one.
- Imports rooms below it: results, records, tables, study, data, baselines, machine, log, common.
"""
