"""Datasets, one file each. The file's name is the dataset's name in a config.

A dataset file defines, for the catalogue and for publications:
    TITLE, AUTHOR, DESCRIPTION, KIND (image, mask or text), LICENCE, CITATION, HOMEPAGE.
    SYNTHETIC: True if the trainer generates the items and nothing is stored.
and, if SYNTHETIC is False:
    FILES: maps each source file to its `bytes`, `sha256`, `md5` and `urls` (mirrors in order).
        Unpublished values are None. Without a published digest, that of the first download is
        pinned. Without published size, a file may have `max_bytes`, by default 4 GiB.
    MIRRORS (optional): beginnings of `urls`, if every file has its `sha256`.
    OTHERS (optional): {name: MD5} of files that users mistake for these.
    TERMS: what users must accept before use; "" for no terms.
    SPLITS: number of records in `train` and `validation`; None if only the source knows it.
    FROM_FOLDER (optional): True if the source is a user's folder, which the config names. With
        MANY = True each dataset whose name begins with the file's name has a folder. For images.py
        the config names the datasets.
    VOCABULARY, TOKENS (optional): number of different tokens of a text, and of tokens in its
        splits. Text has READER's encoding `stream`: the trainer cuts items of any length from it.
    BYTES_PER_TOKEN (optional): of the held-out text, in UTF-8; for bits per byte.
    SHARDS: number of TFRecord files in `train` and `validation`.
    READER: how to read records; part of the manifest (see
        dlbench/trainer/tensorflow/pipelines.py).
    open(folder): a Source that reads the files in `folder`.
An edit of TITLE, AUTHOR, DESCRIPTION, LICENCE, CITATION, HOMEPAGE, TERMS, MIRRORS, BYTES_PER_TOKEN
or the `urls` of a file with a `sha256` converts and trains nothing again. Any other edit does.
SYNTHETIC and KIND are literals, because the workflow reads them without running the file.
Packages outside the standard library are imported inside functions.
"""

from typing import Any, Protocol


class Source(Protocol):
    """The records of a dataset, before they are shuffled.

    Records are numbered from 0 in the source's own order. They are read in any order and from
    several processes.
    """

    def count(self, split: str) -> int:
        """The number of records of a split."""
        ...

    def features(self, split: str, index: int) -> dict[str, Any]:
        """The features of one record: bytes, str, int or a list of ints, by name."""
        ...

    def location(self, split: str, index: int) -> str:
        """The position of a record in the source, for messages."""
        ...
