"""Other programs' logs become rows of our tables, and other programs train runs of a study.

- importers/ has one file for each kind of log, found by its name.
- The programs use import_logs, train_external and finding; no other room imports this one.
- Imports rooms below it: results, records, tables, study, data, machine, log, common.
"""
