"""Text of the user's own, from a folder that the config names (data.text); tokens are bytes.

- The dataset text lies in the folder data.text.path, text_NAME in that of data.text.folders.NAME.
- Files *.txt in UTF-8, in the order of their names; folders in the folder are read, too.
- The last tenth of the text is held out.
"""

from pathlib import Path

from dlbench.data.datasets import Source

TITLE = "Text of your own"
AUTHOR = "who wrote it"
DESCRIPTION = (
    "files *.txt of a folder that the config names, read byte by byte; `text_NAME` is that of a "
    "further folder"
)
KIND = "text"
LICENCE = "that of the text"
CITATION = ""
HOMEPAGE = ""
SYNTHETIC = False
TERMS = ""
VOCABULARY = 256
FROM_FOLDER = True  # of the user: nothing is fetched
MANY = True  # text_books is another one, read by this file
SPLITS = {"train": None, "validation": None}
SHARDS = {"train": 4, "validation": 1}
READER = {"encoding": "stream", "dtype": "uint8", "classes": 256}
FILES = {}


def open(folder: Path) -> Source:
    from dlbench.data import texts

    return texts.Pieces(texts.held_out(texts.read(folder)))
