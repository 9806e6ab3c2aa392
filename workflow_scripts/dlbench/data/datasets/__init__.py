"""Datasets, one file each. The file's name is the dataset's name in a config.

A dataset file defines, for people and for what is published:
    TITLE, AUTHOR, DESCRIPTION, KIND (image, mask or text), LICENCE, CITATION, HOMEPAGE.
    SYNTHETIC: True where nothing is stored: the trainer makes the items.
and, where SYNTHETIC is False:
    FILES: maps each source file to its `bytes`, `sha256`, `md5` and `urls` (mirrors in
        order); None where it is not published: what arrives first is then pinned.
    MIRRORS (optional): beginnings of `urls`, where every file has its `sha256`.
    OTHERS (optional): MD5 of files that are mistaken for these, by name.
    TERMS: what must be accepted before use; "" where nothing must.
    SPLITS: records in `train` and `validation`.
    SHARDS: TFRecord files in `train` and `validation`.
    READER: how records are read, kept in the manifest (see
        dlbench/trainer/tensorflow/pipelines.py).
    open(folder): a source, made from the files in `folder`: `count(split)` and
        `features(split, index)`, the features of one record, in any order and from any
        process; index runs from 0 in the source's own order; and `place(split, index)`,
        where it lies, for messages.
Who edits TITLE, AUTHOR, DESCRIPTION, LICENCE, CITATION, HOMEPAGE, TERMS, MIRRORS or the `urls` of
a file with a `sha256` has nothing converted or trained again; any other edit does.
The file is read outside and inside the trainer's environment: whatever is not
in the standard library is imported inside the functions.
"""
