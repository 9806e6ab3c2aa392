"""Datasets: download them, convert them to TFRecords, verify them, or adopt existing TFRecords.

- datasets/ has one file for each dataset, transports/ one for each URL scheme, forms/ one for each
  way to pack pictures, found by its name.
- Other rooms use the files named after commands (fetch_dataset, list_datasets), and stores.
- The file of a dataset imports only the standard library at module level.
"""
