"""Datasets, one file each. The file's name is the dataset's name in a config.

A dataset file defines, for people and for what is published:
    TITLE, AUTHOR, DESCRIPTION, KIND (image, mask or text), LICENCE, CITATION, HOMEPAGE.
    SYNTHETIC: True if nothing is stored, because the trainer makes the items.
and, if SYNTHETIC is False:
    FILES: maps each source file to its `bytes`, `sha256`, `md5` and `urls` (mirrors in
        order). What is not published is None; the digest of the first download is then pinned, and
        a file of more than 4 GiB is refused unless it has a greater `most_bytes`.
    MIRRORS (optional): beginnings of `urls`, if every file has its `sha256`.
    OTHERS (optional): MD5 of files that are mistaken for these, by name.
    TERMS: what must be accepted before use; "" if nothing must.
    SPLITS: number of records in `train` and `validation`; None where only the source knows.
    FROM_FOLDER (optional): True if the source is a folder of the user's, which the config names;
        with MANY = True any number of them, each a dataset whose name begins with the file's.
    VOCABULARY, TOKENS (optional): how many different tokens text has, and how many its splits have.
        Text has READER's encoding `stream`: the trainer cuts items of any length from it.
    SHARDS: number of TFRecord files in `train` and `validation`.
    READER: how records are read, kept in the manifest (see
        dlbench/trainer/tensorflow/pipelines.py).
    open(folder): the Source made from the files in `folder`.
An edit of TITLE, AUTHOR, DESCRIPTION, LICENCE, CITATION, HOMEPAGE, TERMS, MIRRORS or the `urls` of
a file with a `sha256` converts and trains nothing again. Any other edit does.
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
        """How many records a split has."""
        ...

    def features(self, split: str, index: int) -> dict[str, Any]:
        """The features of one record: bytes, str, int or a list of ints, by name."""
        ...

    def location(self, split: str, index: int) -> str:
        """Where a record lies, for messages."""
        ...
