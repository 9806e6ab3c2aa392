"""Write the archive of a study: all that others need to check its numbers and to derive them again.

- It is a bag with a crate (dlbench/archive/crate.py). Its payload is a
  project folder in which the workflow finds every run finished.
- It contains the workflow, recipes of environments and images, the merged config; of each run the
  record, logs and tables; tables, figures, report; imported tables; manifests of datasets.
- It never contains datasets, checkpoints or installed environments, and images only on request.
- The paths in its config lead into the archive (`portable`), those of a history are left out, and
  values of `auto` are replaced by the resolved ones, so that others derive the same tables.
- Hidden in configs and in programs' output are the secrets that dlbench/machine/redaction.py
  recognises, and each secret of the config wherever it occurs in a text. Other secrets may remain.
  Logs, records, tables and code stay unchanged, since digests name their content: secrets in them
  are reported.
- Each record is compared with the files beside it as they are written to the archive.
"""

import json
import os
import platform
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from dlbench import Error, __version__
from dlbench.archive import crate
from dlbench.common import files as common_files
from dlbench.common import own_code, phrases, plugins
from dlbench.common.files import sha256
from dlbench.data import stores
from dlbench.drawing import FORMATS
from dlbench.images import trainer_image
from dlbench.machine import redaction
from dlbench.plan import plan, sentinels, skipping, standing
from dlbench.records import costs, judgement, run_record
from dlbench.results.collect_runs import IMPORTS
from dlbench.study import config, trainer_environments, yaml_files
from dlbench.tables import cells
from dlbench.trainer.reading.manifest import DIGEST

NAMES = (
    *("Snakefile", "rules", "workflow_scripts", "envs", "profiles", "hatch_build.py"),
    *("pyproject.toml", "uv.lock", "CITATION.cff", "LICENSE", "README.md"),
)
GENERATED = ("__pycache__", "node_modules")


def workflow_files() -> list[str]:
    """Paths relative to the workflow's folder; installed environments are left out."""
    home = own_code.project_path(".")
    return sorted(
        path.as_posix()
        for name in NAMES
        for path in (file.relative_to(home) for file in files_below(home / name))
        if not any(part.startswith(".") or part in GENERATED for part in path.parts)
    )


def files_below(path: Path) -> Iterator[Path]:
    """The plain files below a folder, or the file itself; symbolic links are not followed."""
    if path.is_file():
        yield path
    for root, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(root, name) for name in names)
        yield from (path for path in paths if path.is_file() and not path.is_symlink())


ABOUT = "archive.json"
# Packages that write tables and figures; another version may write other bytes.
MAKERS = ("python", "numpy", "pandas", "pyarrow", "matplotlib", "scipy", "pillow")
CHECKPOINT = "checkpoint"
ORDER = (
    *("results/runs/", "results/batches/", plan.RECORDS_LIST, "results/imports/"),
    *("results/tables/", "results/figures/", "results/rep"),
)
MAX_NAMED = 10  # files with secrets that are listed
SECRETS_HINT = (
    "Only secrets whose name or form is known are found: look through config.yaml, as_given/ and "
    "what programs printed before you publish it."
)
# Texts in which secrets are hidden: no result depends on them, and no digest names them.
TEXTS = re.compile(r"as_given/.+|results/(?:runs|batches)/.+/output/.+|results/.+\.log")
# Code of users, which may contain a key.
CODE = ("trainers/", "own/", "references/")
MIN_SECRET_LETTERS = 6  # shorter secrets are not searched for: many words contain them
BLOCK_BYTES = 1 << 20
HEADER = "# The merged config of the study, as it was computed. Paths are those of this archive.\n"


@dataclass(frozen=True)
class ArchiveSummary:
    """What an archive contains.

    Attributes:
        runs: number of runs.
        files: number of files.
        redacted: {name of a file: number of secrets hidden in it}.
        unredacted: names of files that contain a secret and are unchanged, since digests name
            their content.
        by: authors and licence.
    """

    runs: int
    files: int
    redacted: dict[str, int]
    unredacted: list[str]
    by: str

    def describe_secrets(self) -> list[str]:
        """Lines about the secrets that were hidden and those that were not."""
        redacted = [*self.redacted.items()]
        lines = [
            f"  {phrases.counted(count, 'secret')} hidden in {name}"
            for name, count in redacted[:MAX_NAMED]
        ]
        if len(redacted) > MAX_NAMED:
            lines.append(f"  and in {len(redacted) - MAX_NAMED} more: archive.json has them all")
        lines += [
            f"  a secret stays in {name}, since results name the file's digest: remove the secret "
            "there, and train the runs that depend on the file again"
            for name in self.unredacted[:MAX_NAMED]
        ]
        if len(self.unredacted) > MAX_NAMED:
            lines.append(f"  and in {len(self.unredacted) - MAX_NAMED} more")
        return [*lines, SECRETS_HINT]


def write(
    settings: dict[str, Any], output: str | Path, with_images: bool = False
) -> ArchiveSummary:
    """Write the archive of a study whose runs, tables, figures and report exist.

    `settings`: the merged config; `with_images`: also archive images that are one file or an OCI
    layout. Raises Error: a file is missing, or a record does not match the files beside it.
    """
    study = config.study(settings)
    runs, logs = [], {}
    basis = standing.basis_of(study)
    trained = [*study.runs, *(run for run, _ in sentinels.finished(study, basis))]
    for run in sorted(trained, key=lambda run: run.id):
        record = run_record.read(run_record.folder(run.id) / "run.json")
        runs.append(_crate_run(run, study.labels.get(run.id, run.label()), record))
        logs[run.id] = record["files"]
    files: dict[str, Path | bytes] = {
        name: own_code.project_path(name) for name in workflow_files()
    }
    files |= _results(study, trained) | _environments(study)
    files[plan.RECORDS_LIST] = _list_records(trained)
    settings, user_files = portable(settings, study)
    if with_images:
        settings, image_files = _with_images(settings, study)
        user_files |= image_files
    files |= user_files
    # Dumped with sorted keys: the order in which Snakemake passes the config does not matter.
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
        secrets = secrets_of(settings, *map(yaml_files.read, given))
        files, counts, unredacted = redact_files(files, secrets, Path(folder))
        files[ABOUT] = _json_bytes(
            {
                "study": study.name,
                "dlbench": __version__,
                "tables": cells.OF_STUDY,
                "figures": study.figures,
                "made_with": versions(),
                "redacted": counts,
            }
        )
        authors, license_id = _citation()
        files[crate.METADATA] = crate.metadata(
            study.name, authors, license_id, metadata.version("snakemake"), [*files], runs
        )
        files = {name: files[name] for name in sorted(files, key=_order)}
        crate.write(output, files, info, lambda payload: _check_records(payload, logs))
    by = ", ".join([*(author["name"] for author in authors), license_id])
    return ArchiveSummary(len(runs), len(files), counts, unredacted, by)


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that write tables and figures here."""
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in MAKERS[1:]
    }


def portable(
    settings: dict[str, Any], study: config.Study
) -> tuple[dict[str, Any], dict[str, Path | bytes]]:
    """The merged config with paths into the archive, and the files at these paths.

    Raises Error: an adopted dataset is not where the config says.
    """
    files: dict[str, Path | bytes] = {}
    changed = dict(settings)
    devices = skipping.devices(study.site)
    changed["site"] = settings["site"] | {"device": devices.kind, "cores_per_node": devices.cores}
    if devices.per_node is not None:
        changed["site"]["devices_per_node"] = devices.per_node
    for key, place in (("model_folder", "own"), ("dataset_folder", "own/datasets")):
        if settings[key]:
            changed[key] = _add_user_file(settings[key], place, files)
    changed["trainers"] = {
        name: entry
        | {"files": [_add_user_file(f, f"trainers/{name}", files) for f in entry["files"]]}
        if "files" in entry
        else entry
        for name, entry in settings["trainers"].items()
    }
    changed["references"] = [
        # The folder's name is that of the study.
        entry
        | {
            "path": _add_user_file(
                path, f"references/{Path(os.path.abspath(path)).parent.name}", files
            )
        }
        for entry, path in zip(
            settings["references"], (each["path"] for each in study.references), strict=True
        )
    ]
    changed["imports"] = [
        entry | {"path": f"imported/{entry['name']}.json"} for entry in settings["imports"]
    ]
    for entry, inside in zip(settings["imports"], changed["imports"], strict=True):
        path = Path(entry["path"])
        known = path == Path(inside["path"])  # in an archive that was unpacked
        files[inside["path"]] = path if known else _json_bytes(_list_files(path))
    adopted = stores.adopted(study, as_converted=True)
    for name in sorted({run.dataset for run in study.runs if judgement.has_data(run)}):
        manifest = Path("results/data", name, "manifest.json")
        if name in adopted:
            files[f"adopted/{name}/manifest.json"] = _adopted_manifest(
                name, *adopted[name], manifest
            )
        else:
            files |= _existing_file(f"manifests/{name}.json", manifest)
    changed["data"] = settings["data"] | {
        "store": "adopted" if adopted else None,
        "tfrecords": {},
        "text": {},
        "images": {name: {} for name in settings["data"]["images"]},
        "manual_dir": None,
    }
    # Of other campaigns than this one; and the Snakefile refuses paths at which there is nothing.
    changed |= {"history": [], "machines": {}, "tags": {}}
    return changed, files


def _existing_file(name, path):
    """{name: path}: the file at `path`, or in an unpacked archive the one at `name`; or {}."""
    existing = [p for p in (path, Path(name)) if p.is_file()]
    return {name: existing[0]} if existing else {}


def _add_user_file(path, folder, files):
    """Add a file or folder to `files`. Returns its path in the archive.

    That is the path relative to the project's folder, or if it is outside of that, in `folder`.
    """
    path, project = Path(os.path.abspath(path)), Path.cwd()
    target = path.relative_to(project) if path.is_relative_to(project) else Path(folder, path.name)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and "__pycache__" not in file.parts:
            files[(target / file.relative_to(path)).as_posix()] = file
    return target.as_posix()


def _list_files(path):
    """Names, sizes and digests of the logs of an import; the logs themselves are not archived."""
    return [
        {
            "file": str(file.relative_to(path)) if path.is_dir() else file.name,
            "bytes": file.stat().st_size,
            "sha256": sha256(file),
        }
        for file in common_files.files_below(path)
    ]


def _adopted_manifest(name, folder, digest, manifest):
    """The manifest of an adopted dataset; `digest` is the one in the provenance of its runs."""
    manifest = manifest if manifest.is_file() else folder / "manifest.json"
    content = common_files.read_json(manifest) or {"dataset": name}
    content.pop(DIGEST, None)  # the content changes, and with it the digest
    return _json_bytes({**content, "folder": None, "code_sha256": digest})


def _results(study, trained):
    """Tables, figures, report, and the files of each run without checkpoints and partial files."""
    results = run_record.RESULTS
    files = [results / "report.html"]
    files += [results / f"figures/{name}.{end}" for name in study.figures for end in FORMATS]
    files += [results / f"tables/{name}.parquet" for name in cells.OF_STUDY]
    files += [p for end in ("parquet", "csv") for p in (results / "tables").glob(f"*.{end}")]
    files += [p for name in ("packages", "code") for p in (results / name).glob("*.txt")]
    files += costs.benchmarks(results)
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


def _list_records(trained):
    """The list of records, as the workflow writes it, without records of other studies."""
    records = sorted(run_record.folder(run.id) / "run.json" for run in trained)
    return "".join(f"{sha256(record)}  {record}\n" for record in records).encode()


def _is_result(path):
    return not (path.name.startswith((CHECKPOINT, ".")) or path.name.endswith(".part"))


def _environments(study):
    """Lists of installed packages, and the descriptions of images and their forms."""
    results, files = run_record.RESULTS, {}
    for name in {run.environment for run in study.runs}:
        files |= _existing_file(f"environments/{name}.json", results / f"environments/{name}.json")
        for place in (Path("images", name), results / "images" / name):
            files |= {f"images/{name}/{path.name}": path for path in place.glob("*.json")}
    return files


def _with_images(settings, study):
    """The config with paths of images in the archive, and the images' files."""
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


def _crate_run(run, label, record):
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


def _citation():
    """(authors, SPDX name of the licence) from CITATION.cff."""
    try:
        citation = yaml.safe_load(own_code.project_path("CITATION.cff").read_text(encoding="utf-8"))
        authors = [
            crate.author(number, author) for number, author in enumerate(citation["authors"], 1)
        ]
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
        raise Error(f"{missing[0]}{more}: missing; `snakemake archive` makes all it needs")


def _order(name):
    """Sort key: files follow those that they are made from.

    Programs that ignore dates write files in this order, so outputs are newer than their inputs
    and the workflow does not make them again.
    """
    return next((n for n, made in enumerate(ORDER, 1) if name.startswith(made)), 0), name


def _check_records(payload, logs):
    """Check that files have the size and digest that their run's record states.

    Raises RecordError: a file differs.
    """
    for run_id, files in logs.items():
        folder = run_record.folder(run_id).as_posix()
        for name, expected in files.items():
            if payload.get(f"{folder}/{name}") != (expected["bytes"], expected["sha256"]):
                raise run_record.RecordError(f"{folder}/{name}: not as its record says")


def _json_bytes(content):
    return f"{json.dumps(content, indent=1, ensure_ascii=False)}\n".encode()


def secrets_of(*settings: Any) -> list[str]:
    """The secrets in settings and in the environment variable redaction.VARIABLE, longest first."""
    secrets = set(json.loads(os.environ.get(redaction.VARIABLE, "[]")))

    def hide(secret):
        secrets.add(secret)
        return redaction.HIDDEN

    for content in settings:
        redaction.redact_settings(content, hide)
    texts = {secret.strip("\"'") for secret in secrets} - {redaction.HIDDEN}
    return sorted((n for n in texts if len(n) >= MIN_SECRET_LETTERS), key=lambda n: (-len(n), n))


def redact_files(
    files: Mapping[str, Path | bytes], secrets: Iterable[str], folder: Path
) -> tuple[dict[str, Path | bytes], dict[str, int], list[str]]:
    """Hide the secrets in the texts among the files of an archive.

    `files`: {name in the archive: path or content}; `secrets`: known secrets, from `secrets_of`;
    `folder`: temporary folder for the redacted copies. Returns the files, with redacted copies;
    {name: number of secrets hidden in it}; the names of files that contain a secret and stay
    unchanged.
    """
    known = [secret.encode() for secret in secrets]
    archived, unredacted = dict(files), []
    counts: dict[str, int] = {}
    for name, source in files.items():
        if TEXTS.fullmatch(name):
            copy = folder / str(len(counts))
            if count := _redacted_copy(source, known, copy):
                archived[name], counts[name] = copy, count
        elif _has_secret(name, source, known):
            unredacted.append(name)
    return archived, counts, unredacted


def _redacted_copy(source, known, copy):
    """Write a redacted copy of a text. Returns the number of secrets hidden; 0: no copy is kept."""
    total = 0
    with open(copy, "wb") as file:
        for block in _lines(source):
            if b"\0" in block:
                total = 0  # binary
                break
            text, count = _redacted(block, known)
            total += count
            file.write(text)
    if not total:
        copy.unlink()
    return total


def _redacted(block, known):
    """(bytes without secrets, number of secrets hidden)."""
    count = 0
    hidden = redaction.HIDDEN.encode()
    for secret in known:
        count += block.count(secret)
        block = block.replace(secret, hidden)

    def hide(secret):
        nonlocal count
        count += redaction.HIDDEN not in secret
        return redaction.HIDDEN

    text = redaction.redact(block.decode("utf-8", "surrogateescape"), hide)
    return text.encode("utf-8", "surrogateescape"), count


def _has_secret(name, source, known):
    if not known and not name.startswith(CODE):
        return False
    return any(
        any(secret in block for secret in known)
        or (name.startswith(CODE) and redaction.has_key(block.decode("utf-8", "replace")))
        for block in _lines(source)
    )


def _lines(source):
    """Yield the content in blocks of whole lines; a line longer than a block is cut."""
    if isinstance(source, bytes):
        yield source
        return
    with open(source, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block + file.readline(BLOCK_BYTES)
