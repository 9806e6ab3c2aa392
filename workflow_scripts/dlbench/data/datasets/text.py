"""The user's text, from a folder that the config names in data.text; tokens are bytes.

- The dataset text is in the folder data.text.path, text_NAME in data.text.folders.NAME.
- All files *.txt below the folder are read, in UTF-8 and in the order of their names.
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
BYTES_PER_TOKEN = 1
FROM_FOLDER = True  # of the user: nothing is downloaded
MANY = True  # e.g. text_books is one more dataset of this file
SPLITS = {"train": None, "validation": None}
SHARDS = {"train": 4, "validation": 1}
READER = {"encoding": "stream", "dtype": "uint8", "classes": 256}
FILES = {}


def open(folder: Path) -> Source:
    from dlbench.data import sources

    return sources.Pieces(sources.held_out(sources.read(folder)))
