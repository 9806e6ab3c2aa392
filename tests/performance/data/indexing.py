"""Finding a user's pictures at a start: a folder for each class, with tiny files.

    uv run python -m tests.performance.data.indexing [--pictures 1000000] [--folder DIR]

Makes the files, and prints, from starts in processes of their own:
- the seconds of the first start, which reads all contents (target: at most 60 s a million);
- the seconds of a later start, which lists them (target: at most 60 s a million);
- the peak memory of each (target: at most 500 MB).
The files lie in memory if there is /dev/shm; they are deleted at the end.
"""

import os
import sys
import tempfile
from pathlib import Path

from .. import bench

CLASSES = 1000
START = """
import sys
from pathlib import Path
from dlbench.data import own_pictures
own_pictures.identify("photos", {"path": sys.argv[1]}, Path(sys.argv[2]))
"""


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--pictures", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="of later starts")
    parser.add_argument("--folder", type=Path, help="where files are made; by default /dev/shm")
    args = parser.parse_args()
    memory = Path("/dev/shm")
    place = args.folder or (memory if os.access(memory, os.W_OK) else None)
    with tempfile.TemporaryDirectory(prefix="pictures-", dir=place) as folder:
        own, output = Path(folder, "own"), Path(folder, "results")
        make(own, args.pictures)
        print(f"{args.pictures} files in {CLASSES} classes below {folder}", flush=True)
        first = start(own, output)
        later = [start(own, output) for _ in range(args.rounds)]
    most_s = max(5, 60 * args.pictures / 1_000_000)
    figures = bench.Figures(args.json)
    figures.add("first start", first.wall_s, "s", at_most=most_s)
    figures.add("memory of the first start", first.peak_mb, "MB", at_most=500)
    figures.add("later start", [used.wall_s for used in later], "s", at_most=most_s)
    figures.add("memory of a later start", [used.peak_mb for used in later], "MB", at_most=500)


def make(folder, pictures):
    """Files of 60 bytes; none is decoded at a start."""
    for label in range(CLASSES):
        place = folder / f"class{label:04d}"
        place.mkdir(parents=True)
        for number in range(label, pictures, CLASSES):
            with open(f"{place}/{number:08d}.jpg", "wb", buffering=0) as file:
                file.write(b"%060d" % number)


def start(own, output):
    """The resources that the search for pictures takes, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(bench.REPOSITORY / "workflow_scripts")}
    return bench.run([sys.executable, "-c", START, own, output], env=environment)


if __name__ == "__main__":
    main()
