"""The bag that an archive is, and ro-crate-metadata.json, its machine-readable description.

A Workflow Run Crate 0.6 on RO-Crate 1.3: the workflow with its tools, one action for the whole
study, and one for each run. A run's folder is one entity, without its files, so the crate grows by
1 kB a run. Sources: the profile https://w3id.org/ro/wfrun/workflow/0.6 and those that it extends.

A bag is a zip file with the digest of every file in it; the same files give the same bytes. The
format is BagIt 1.0 (RFC 8493): one folder, `archive`, has the payload in `data`, and beside it
manifests with SHA-256 digests and tag files about the bag. Files are read and written once, in the
given order, as streams. Date and permissions of each entry are fixed.
"""

import contextlib
import hashlib
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dlbench import Error, __version__
from dlbench.common.files import atomic_write
from dlbench.log.event_fields import SUCCEEDED
from dlbench.study.other_trainers import BUILT_IN

METADATA = "ro-crate-metadata.json"
ROOT, WORKFLOW, STUDY = "./", "Snakefile", "#study"
CRATE = "https://w3id.org/ro/crate/1.3"
CONTEXT = [f"{CRATE}/context", "https://w3id.org/ro/terms/workflow-run/context"]
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.6": ("Process Run Crate", "0.6"),
    "https://w3id.org/ro/wfrun/workflow/0.6": ("Workflow Run Crate", "0.6"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.1": ("Workflow RO-Crate", "1.1"),
}
SNAKEMAKE = "https://snakemake.readthedocs.io"
RUNS, TRAIN = "results/runs/", "workflow_scripts/train.py"
RESULTS = ("results/tables/", "results/figures/", "results/report.")  # beside the runs
ENCODINGS = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".py": "text/x-python",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
}


def metadata(
    title: str,
    authors: Sequence[dict[str, Any]],
    license_id: str,
    engine_version: str,
    names: Iterable[str],
    runs: Sequence[dict[str, Any]],
) -> bytes:
    """The content of ro-crate-metadata.json, as bytes.

    Args:
        title: name of the study.
        authors: authors of the archive, each from `author`.
        license_id: SPDX identifier.
        engine_version: Snakemake's version.
        names: names of all files in the archive.
        runs: for each run its `id`, `label`, `status`, `message`, `dataset`, `trainer`, `image` (a
            digest, or None on bare metal), `started` and `ended` (UTC; None if it never started).
    """
    names = set(names)
    # The folder of a run stands for its files.
    singles = sorted(name for name in names if not name.startswith(RUNS))
    tools = list(_tools(runs))
    described = {WORKFLOW, *(tool["@id"] for tool in tools)}
    graph = [
        *_head(title, authors, license_id, singles, runs),
        *_workflow(title, engine_version, tools, singles, runs),
        *tools,
        *(_file(name) for name in singles if name not in described),
        {
            "@id": RUNS,
            "@type": "Dataset",
            "name": "Runs",
            "description": "A folder each: its record, logs and tables of steps",
            "hasPart": _references(map(_run_folder, runs)),
        },
        *_images(runs),
        *(entity for run in runs for entity in _run(run, names)),
    ]
    text = json.dumps({"@context": CONTEXT, "@graph": graph}, indent=1, ensure_ascii=False)
    return f"{text}\n".encode()


def author(number: int, entry: dict[str, Any]) -> dict[str, Any]:
    """The crate's entity for an author.

    Args:
        number: position in the list of authors, from 1; part of the id if nothing else is.
        entry: as in CITATION.cff: the names of a person, or the name of an organisation (Citation
            File Format 1.2.0).
    """
    names = [entry.get(key) for key in ("given-names", "name-particle", "family-names")]
    return {
        "@id": entry.get("orcid") or entry.get("website") or f"#author-{number}",
        "@type": "Organization" if "name" in entry else "Person",
        "name": entry.get("name") or " ".join(filter(None, names)),
    }


def last_date(runs: Sequence[dict[str, Any]]) -> str:
    """The archive's date: the day on which its last run ended."""
    return max((run["ended"] for run in runs if run["ended"]), default="1980-01-01")[:10]


def _head(title, authors, license_id, singles, runs):
    """Entities for the crate itself: its content, authors, licence and profiles."""
    licence = f"https://spdx.org/licenses/{license_id}"
    yield {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": CRATE},
        "about": {"@id": ROOT},
    }
    yield {
        "@id": ROOT,
        "@type": "Dataset",
        "name": f"{title}: deep-learning benchmark",
        "description": f"{len(runs)} runs measured with dlbench {__version__}: the workflow, "
        "its config, raw logs, records, tables, figures and the report.",
        "datePublished": last_date(runs),
        "author": _references(author["@id"] for author in authors),
        "license": {"@id": licence},
        "conformsTo": _references(PROFILES),
        "mainEntity": {"@id": WORKFLOW},
        "hasPart": _references([*map(quote, singles), RUNS]),
        "mentions": _references([STUDY, *map(_action_id, runs)]),
    }
    yield from authors
    yield {
        "@id": licence,
        "@type": "CreativeWork",
        "name": license_id,
        "description": "the licence of this archive by CITATION.cff; LICENSE is dlbench's own",
    }
    for id_, (name, version) in PROFILES.items():
        kinds = ["CreativeWork", "Profile"]
        yield {"@id": id_, "@type": kinds, "name": name, "version": version}


def _workflow(title, engine_version, tools, singles, runs):
    """Entities for the workflow, its language, what it takes and makes, and the study's action."""
    results = [name for name in singles if name.startswith(RESULTS)]
    yield {
        "@id": WORKFLOW,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
        "name": "dlbench",
        "version": __version__,
        "programmingLanguage": {"@id": "#language"},
        "hasPart": _references(tool["@id"] for tool in tools),
        "input": {"@id": "#config"},
        "output": {"@id": "#results"},
    }
    yield {
        "@id": "#language",
        "@type": "ComputerLanguage",
        "name": "Snakemake",
        "url": {"@id": SNAKEMAKE},
        "version": engine_version,
    }
    for id_, label, examples in (
        ("#config", "The config", ["config.yaml"]),
        ("#results", "Tables, figures, report", results),
    ):
        yield {
            "@id": id_,
            "@type": "FormalParameter",
            "additionalType": "File",
            "name": label,
            "workExample": _references(map(quote, examples)),
        }
    yield {
        "@id": STUDY,
        "@type": "CreateAction",
        "name": f"The study {title}",
        "instrument": {"@id": WORKFLOW},
        "object": _references(["config.yaml"]),
        "result": _references(map(quote, results)),
        **_dates(
            min((run["started"] for run in runs if run["started"]), default=None),
            max((run["ended"] for run in runs if run["ended"]), default=None),
        ),
    }


def _tools(runs):
    """What trained: the trainer, and programs that the config names."""
    for name in sorted({run["trainer"] for run in runs}):
        if name == BUILT_IN:
            yield {
                "@id": TRAIN,
                "@type": ["File", "SoftwareSourceCode"],
                "name": TRAIN,
                "description": "Train one combination",
                "encodingFormat": ENCODINGS[".py"],
            }
        else:  # an application must have an address and a version
            yield {
                "@id": _trainer_id(name),
                "@type": "SoftwareApplication",
                "name": name,
                "url": {"@id": "config.yaml"},  # its command
                "version": "not recorded",
            }


def _run(run, names):
    """Entities for a run: its folder, and the action that trained it."""
    data = (f"manifests/{run['dataset']}.json", f"adopted/{run['dataset']}/manifest.json")
    completed = run["status"] in SUCCEEDED
    yield {"@id": _run_folder(run), "@type": "Dataset", "name": run["label"]}
    yield {
        "@id": _action_id(run),
        "@type": "CreateAction",
        "name": run["label"],
        "instrument": {"@id": _trainer_id(run["trainer"])},
        "object": _references(["config.yaml", *(name for name in data if name in names)]),
        "result": _references([_run_folder(run)]),
        **_dates(run["started"], run["ended"]),
        "actionStatus": f"http://schema.org/{'Completed' if completed else 'Failed'}ActionStatus",
        **({} if completed else {"error": f"{run['status']}: {run['message']}"}),
        **({"containerImage": {"@id": f"#{run['image']}"}} if run["image"] else {}),
    }


def _images(runs):
    for image in sorted({run["image"] for run in runs} - {None}):
        yield {
            "@id": f"#{image}",
            "@type": "ContainerImage",
            "name": image,
            "sha256": image.removeprefix("sha256:"),
        }


def _file(name):
    suffix = name[name.rfind(".") :]
    encoding = {"encodingFormat": ENCODINGS[suffix]} if suffix in ENCODINGS else {}
    return {"@id": quote(name), "@type": "File", "name": name, **encoding}


def _trainer_id(name):
    return TRAIN if name == BUILT_IN else f"#trainer-{quote(name)}"


def _action_id(run):
    return f"#run-{run['id']}"


def _run_folder(run):
    return f"{RUNS}{run['id']}/"


def _dates(start, end):
    return {key: value for key, value in (("startTime", start), ("endTime", end)) if value}


def _references(ids):
    return [{"@id": id_} for id_ in ids]


BASE, PAYLOAD = "archive", "data"
MANIFEST, TAG_MANIFEST = "manifest-sha256.txt", "tagmanifest-sha256.txt"
DECLARATION = "bagit.txt", "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can have
BLOCK_BYTES = 1 << 20
_PERMISSIONS = 0o100644 << 16  # a plain file; the umask of the user who unpacks it applies
_UNIX = 3
# Characters that manifests would have to encode, on which readers disagree.
_UNUSUAL = re.compile(r"[\x00-\x1f\x7f%\\]")


def write(
    output: str | Path,
    files: Mapping[str, Path | bytes],
    info: Iterable[tuple[str, str]],
    check: Callable[[dict[str, tuple[int, str]]], None] | None = None,
) -> None:
    """Write a bag atomically.

    Args:
        files: maps names, relative to the payload, to paths or to the content itself.
        info: (label, value) pairs of bag-info.txt.
        check: called with {name: (bytes, sha256)} of the payload before the bag gets its name; if
            it raises, no bag is written.

    Raises:
        Error: a file's name has a character that manifests cannot have.
    """
    for name in files:
        if _UNUSUAL.search(name):
            raise Error(f"{name!r}: the name has a character that archives cannot have; rename it")
    with atomic_write(output) as part:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            payload = _add_all(archive, files, info)
        if check:
            check(payload)


def _add_all(archive, files, info):
    """Write payload and tag files. Returns {name: (bytes, sha256)} of the payload."""
    payload = {name: _add(archive, f"{PAYLOAD}/{name}", source) for name, source in files.items()}
    total = sum(size for size, _ in payload.values())
    info = [*info, ("Payload-Oxum", f"{total}.{len(payload)}")]
    tags = {
        DECLARATION[0]: DECLARATION[1],
        "bag-info.txt": "".join(f"{label}: {_line(value)}\n" for label, value in info),
        MANIFEST: _manifest({f"{PAYLOAD}/{name}": of_file for name, of_file in payload.items()}),
    }
    tag_digests = {name: _add(archive, name, text.encode()) for name, text in tags.items()}
    _add(archive, TAG_MANIFEST, _manifest(tag_digests).encode())
    return payload


def _add(archive, name, source):
    """Write one file. Returns (bytes, sha256) of what was written."""
    entry = zipfile.ZipInfo(f"{BASE}/{name}", DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system, entry.external_attr = _UNIX, _PERMISSIONS
    total, size = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        if isinstance(source, bytes):
            blocks, entry.file_size = [source], len(source)
        else:
            file = stack.enter_context(open(source, "rb"))
            # zipfile needs the size beforehand: large files have another header.
            entry.file_size = Path(source).stat().st_size
            blocks = iter(lambda: file.read(BLOCK_BYTES), b"")
        target = stack.enter_context(archive.open(entry, "w"))
        for block in blocks:
            total.update(block)
            size += len(block)
            target.write(block)
    return size, total.hexdigest()


def _manifest(files):
    return "".join(f"{digest}  {name}\n" for name, (_, digest) in sorted(files.items()))


def _line(text):
    return " ".join(str(text).split())
