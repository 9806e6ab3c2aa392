"""The archive of a study: everything from which others check its numbers, and redo them.

- A bag (dlbench/archive/bag.py) around a crate (dlbench/archive/crate.py); its payload is a
  project folder as ours is, in which the workflow finds every run done.
- In it: workflow, environments and images' recipes; the merged config; of each run the record, the
  logs and the tables; tables, figures, report; imported tables; manifests of datasets.
- Never in it: datasets, checkpoints, installed environments; images only where asked for.
- All paths of the config lead into the archive (`portable`), and `auto` is what it was here, so the
  tables come out the same elsewhere.
- Secrets that are found in configs and in what programs printed are hidden (`redacted`).
- Each record is compared with the files beside it as they went into the archive.
"""

import json
import os
import platform
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from dlbench import Error, __version__
from dlbench.archive import bag, crate, redacted
from dlbench.archive.workflow_files import files_below, workflow_files
from dlbench.common import files as common_files
from dlbench.common import own_code, phrases, plugins
from dlbench.common.files import sha256
from dlbench.data import stores
from dlbench.drawing.formats import FORMATS
from dlbench.images import trainer_image
from dlbench.machine import redaction
from dlbench.plan import records_list, sentinels, site_devices
from dlbench.records import run_record, staleness
from dlbench.results.collect_runs import IMPORTS
from dlbench.study import config, trainer_environments, yaml_files
from dlbench.tables import table_names
from dlbench.trainer.reading.manifest import DIGEST

ABOUT = "archive.json"
# What tables and figures are made with; another version may give other bytes.
MAKERS = ("python", "numpy", "pandas", "pyarrow", "matplotlib", "scipy", "pillow")
CHECKPOINT = "checkpoint"
ORDER = (
    *("results/runs/", "results/batches/", records_list.PATH, "results/imports/"),
    *("results/tables/", "results/figures/", "results/rep"),
)
MOST_NAMED = 10  # files with secrets
LOOK_THROUGH = (
    "Only secrets whose name or form is known are found: look through config.yaml, as_given/ and "
    "what programs printed before you publish it."
)
HEADER = "# The merged config of the study, as it was computed. Paths are those of this archive.\n"


@dataclass(frozen=True)
class Written:
    """What is in an archive.

    Attributes:
        runs: how many.
        files: how many.
        redacted: {name of a file: how many secrets were hidden in it}.
        left: the names of files that have a secret in them, since digests name their content.
    """

    runs: int
    files: int
    redacted: dict[str, int]
    left: list[str]

    def about_secrets(self) -> list[str]:
        """Lines about what was hidden, and what was not."""
        redacted = [*self.redacted.items()]
        lines = [
            f"  {phrases.counted(count, 'secret')} hidden in {name}"
            for name, count in redacted[:MOST_NAMED]
        ]
        if len(redacted) > MOST_NAMED:
            lines.append(f"  and in {len(redacted) - MOST_NAMED} more: archive.json has them all")
        lines += [
            f"  a secret stays in {name}, whose digest the results name: take it out there, and "
            "have the runs that follow from it made again"
            for name in self.left[:MOST_NAMED]
        ]
        if len(self.left) > MOST_NAMED:
            lines.append(f"  and in {len(self.left) - MOST_NAMED} more")
        return [*lines, LOOK_THROUGH]


def write(settings: dict[str, Any], output: str | Path, with_images: bool = False) -> Written:
    """Write the archive of a study whose runs, tables, figures and report are there.

    Args:
        settings: the merged config.
        with_images: also put images in that lie here as one file or a layout.

    Raises:
        Error: something is missing, or a record is not that of the files beside it.
    """
    study = config.study(settings)
    runs, logs = [], {}
    trained = _trained(study)
    for run in sorted(trained, key=lambda run: run.id):
        record = run_record.read(run_record.folder(run.id) / "run.json")
        runs.append(_described(run, study.labels.get(run.id, run.label()), record))
        logs[run.id] = record["files"]
    files: dict[str, Path | bytes] = {name: own_code.here(name) for name in workflow_files()}
    files |= _results(study, trained) | _environments(study)
    files[records_list.PATH] = _listed_records(trained)
    settings, taken = portable(settings, study)
    if with_images:
        settings, images_here = _with_images(settings, study)
        taken |= images_here
    files |= taken
    # Sorted: as Snakemake hands the config over, and as it was written, are then the same bytes.
    hidden = redaction.redact_settings(settings)
    files["config.yaml"] = (HEADER + yaml.safe_dump(hidden)).encode()
    given = [Path(n) for n in ("config.yaml", "site.yaml") if Path(n).is_file()]
    files |= {f"as_given/{path}": path for path in given}
    _check_all_exist(files)
    info = [
        ("External-Description", f"{study.name}: {len(runs)} runs of deep-learning benchmarks"),
        ("Bag-Software-Agent", f"dlbench {__version__}"),
        ("Bagging-Date", crate.last_date(runs)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        secrets = redacted.secrets_of(settings, *map(yaml_files.read, given))
        files, counts, left = redacted.redact_files(files, secrets, Path(folder))
        files[ABOUT] = _plain(
            {
                "study": study.name,
                "dlbench": __version__,
                "tables": table_names.OF_STUDY,
                "figures": study.figures,
                "made_with": versions(),
                "redacted": counts,
            }
        )
        authors, license_id = _cited()
        files[crate.METADATA] = crate.metadata(
            study.name, authors, license_id, metadata.version("snakemake"), [*files], runs
        )
        files = {name: files[name] for name in sorted(files, key=_order)}
        bag.write(output, files, info, lambda payload: _check_records(payload, logs))
    return Written(len(runs), len(files), counts, left)


def _trained(study):
    """The runs of a study, and the sentinels that are in its tables."""
    recipes = stores.recipes(stores.adopted(study))
    return [*study.runs, *(run for run, _ in sentinels.finished(study, recipes))]


def versions() -> dict[str, str]:
    """What made, or would make, tables and figures here."""
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in MAKERS[1:]
    }


def portable(
    settings: dict[str, Any], study: config.Study
) -> tuple[dict[str, Any], dict[str, Path | bytes]]:
    """The merged config with its paths leading into the archive, and what lies there.

    Raises:
        Error: a dataset of others is not where the config says.
    """
    files: dict[str, Path | bytes] = {}
    changed = dict(settings)
    devices = site_devices.devices(study.site)
    changed["site"] = settings["site"] | {"device": devices.kind, "cores_per_node": devices.cores}
    if devices.per_node is not None:
        changed["site"]["devices_per_node"] = devices.per_node
    if settings["model_folder"]:
        changed["model_folder"] = _take(settings["model_folder"], "own", files)
    changed["trainers"] = {
        name: entry | {"files": [_take(f, f"trainers/{name}", files) for f in entry["files"]]}
        if "files" in entry
        else entry
        for name, entry in settings["trainers"].items()
    }
    changed["references"] = [
        # The folder's name is that of the study.
        entry | {"path": _take(found["path"], f"references/{_parent(found['path'])}", files)}
        for entry, found in zip(settings["references"], study.references, strict=True)
    ]
    changed["imports"] = [
        entry | {"path": f"imported/{entry['name']}.json"} for entry in settings["imports"]
    ]
    for entry, inside in zip(settings["imports"], changed["imports"], strict=True):
        path = Path(entry["path"])
        known = path == Path(inside["path"])  # of an archive that was unpacked
        files[inside["path"]] = path if known else _plain(_listed(path))
    adopted = stores.adopted(study)
    for name in sorted({run.dataset for run in study.runs if staleness.has_data(run)}):
        manifest = Path("results/data", name, "manifest.json")
        if name in adopted:
            files[f"adopted/{name}/manifest.json"] = _adopted(name, *adopted[name], manifest)
        else:
            files |= _first(f"manifests/{name}.json", manifest)
    changed["data"] = settings["data"] | {
        "store": "adopted" if adopted else None,
        "tfrecords": {},
        "text": {},
        "manual_dir": None,
    }
    return changed, files


def _first(name, path):
    """A file under a name: the one here, else that of an archive which was unpacked here."""
    there = [p for p in (path, Path(name)) if p.is_file()]
    return {name: there[0]} if there else {}


def _take(path, place, files):
    """Put a file or folder in, at its place in our folder or else in `place`; returns where."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    target = path.relative_to(here) if path.is_relative_to(here) else Path(place, path.name)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and "__pycache__" not in file.parts:
            files[(target / file.relative_to(path)).as_posix()] = file
    return target.as_posix()


def _parent(path):
    return Path(os.path.abspath(path)).parent.name


def _listed(path):
    """What an import was read from: names, sizes, digests. The logs themselves stay with others."""
    return [
        {
            "file": str(file.relative_to(path)) if path.is_dir() else file.name,
            "bytes": file.stat().st_size,
            "sha256": sha256(file),
        }
        for file in common_files.files_below(path)
    ]


def _adopted(name, folder, digest, manifest):
    """The manifest of a dataset that others converted; its digest is what runs were made from."""
    manifest = manifest if manifest.is_file() else folder / "manifest.json"
    content = common_files.read_json(manifest) or {"dataset": name}
    content.pop(DIGEST, None)  # it is another one
    return _plain({**content, "folder": None, "code_sha256": digest})


def _results(study, trained):
    """Tables, figures, report, and of each run all but what is large and no result."""
    results = run_record.RESULTS
    files = [results / "report.html"]
    files += [results / f"figures/{name}.{end}" for name in study.figures for end in FORMATS]
    files += [results / f"tables/{name}.parquet" for name in table_names.OF_STUDY]
    files += [p for end in ("parquet", "csv") for p in (results / "tables").glob(f"*.{end}")]
    files += [p for name in ("packages", "code") for p in (results / name).glob("*.txt")]
    if trainer_environments.CHOSEN.is_file():
        files.append(trainer_environments.CHOSEN)
    for entry in study.imports:
        files += (IMPORTS / entry["name"]).glob("*.parquet")
    for search in study.searches.values():
        files += filter(_is_result, files_below(search.folder))
    for run in trained:
        files += filter(_is_result, files_below(run_record.folder(run.id)))
        log = results / f"logs/train/{run.id}.log"
        files += [log] if log.is_file() else []
    return {path.as_posix(): path for path in files}


def _listed_records(trained):
    """As the workflow lists them, but for those of other studies."""
    records = sorted(run_record.folder(run.id) / "run.json" for run in trained)
    return "".join(f"{sha256(record)}  {record}\n" for record in records).encode()


def _is_result(path):
    return not (path.name.startswith((CHECKPOINT, ".")) or path.name.endswith(".part"))


def _environments(study):
    """Lists of what was installed, and what images are made from and named by."""
    results, files = run_record.RESULTS, {}
    for name in {run.environment for run in study.runs}:
        files |= _first(f"environments/{name}.json", results / f"environments/{name}.json")
        for place in (Path("images", name), results / "images" / name):
            files |= {f"images/{name}/{path.name}": path for path in place.glob("*.json")}
    return files


def _with_images(settings, study):
    """The config with images that lie in the archive, and their files."""
    files, chosen = {}, dict(settings["images"])
    contained = [r for r in study.runs if plugins.load("runtimes", r.runtime).CONTAINED]
    for name in sorted({run.environment for run in contained}):
        description = common_files.read_json(trainer_image.image_path(name)) or {}
        if "path" not in description:
            raise Error(f"image {name}: not made here; leave --with-images out")
        path, place = Path(description["path"]), trainer_image.IMAGES / name
        source = Path(trainer_image.settings(name, settings["images"])["source"])
        if source.is_file():
            target = f"images/{name}/{source.name}"
            files[target] = source
            chosen[name] = chosen.get(name, {}) | {"source": target}
        elif path.resolve().is_relative_to(place.resolve()):
            files[trainer_image.image_path(name)] = Path(trainer_image.image_path(name))
            for inside in (path.resolve().relative_to(place.resolve()), "marker"):
                files |= {p.as_posix(): p for p in files_below(place / inside)}
        else:
            raise Error(f"image {name}: {path} is a folder; make a SIF file of it to archive it")
    return settings | {"images": chosen}, files


def _described(run, label, record):
    """What the crate says of a run."""
    container = record["provenance"].get("container") or {}
    return {
        "id": run.id,
        "label": label,
        "status": record["status"],
        "message": record["message"],
        "dataset": run.dataset,
        "trainer": run.trainer,
        "image": container.get("digest"),
        "started": record["summary"].get("started_at"),
        "ended": record["summary"].get("ended_at"),
    }


def _cited():
    """What CITATION.cff says: the authors, and what the whole may be used under."""
    try:
        citation = yaml.safe_load(own_code.here("CITATION.cff").read_text(encoding="utf-8"))
        authors = [crate.author(number, one) for number, one in enumerate(citation["authors"], 1)]
        return authors, citation["license"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise Error(
            f"CITATION.cff: expected authors and a license (an SPDX name) in it: {error!r}"
        ) from error


def _check_all_exist(files):
    missing = sorted(
        n for n, path in files.items() if isinstance(path, Path) and not path.is_file()
    )
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise Error(f"{missing[0]}{more}: not there; `snakemake archive` makes all it needs")


def _order(name):
    """What is made from others comes after them: unpacked by programs that forget dates, too, it
    is newer, so that the workflow does not make it again.
    """
    return next((n for n, made in enumerate(ORDER, 1) if name.startswith(made)), 0), name


def _check_records(payload, logs):
    """Compare what went into the archive with what the records say of the files beside them."""
    for run_id, files in logs.items():
        place = run_record.folder(run_id).as_posix()
        for name, expected in files.items():
            if payload.get(f"{place}/{name}") != (expected["bytes"], expected["sha256"]):
                raise run_record.RecordError(f"{place}/{name}: not as its record says")


def _plain(content):
    return f"{json.dumps(content, indent=1, ensure_ascii=False)}\n".encode()
