"""Datasets: fetched, converted to TFRecords, verified, or adopted from others.

- datasets/ and transports/ have one file a dataset and a URL scheme, found by its name.
- Other rooms use the programs' files (fetch_dataset, convert_dataset, verify_dataset,
  adopt_dataset, list_datasets), stores and tfrecord.
- Imports common. What a dataset's file imports at its top is the standard library.
"""
