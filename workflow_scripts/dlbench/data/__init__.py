"""Datasets: download them, convert them to TFRecords, verify them, or adopt existing TFRecords.

- datasets/ has one file for each dataset, transports/ one for each URL scheme, found by its name.
- Other rooms use the modules of the programs (fetch_dataset, convert_dataset, adopt_dataset,
  list_datasets) and stores.
- The file of a dataset imports only the standard library at module level.
"""
