"""Provide the source files of a dataset: staged by the user, or downloaded from mirrors.

Each is compared with its published size and digests; an error names the likely cause of a
difference. The published values of a file are a dictionary with `bytes`, `sha256` and `md5`; None:
unpublished.
"""

import hashlib
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import plugins
from dlbench.data import download


class FetchError(Error):
    """A dataset cannot be fetched; the message says what to do."""


def fetch(
    name: str,
    folder: Path | str,
    *,
    manual_dir: Path | str | None = None,
    offline: bool = False,
    terms_accepted: bool = False,
) -> dict[str, dict[str, Any]]:
    """Provide the source files of dataset `name` in `folder`, compared with their published values.

    Files that the user staged stay where they are: `folder` gets a symbolic link to each.

    Args:
        manual_dir: folder of staged files, directly in it or in its subfolder `name`.
        offline: download nothing.
        terms_accepted: whether the user has accepted the dataset's terms.

    Returns:
        The {"bytes", "sha256", "url"} of each file, by its name.

    Raises:
        FetchError: the terms are not accepted, a file is missing and cannot be downloaded, or a
            staged file is not the published one.
        download.WrongFile: a file in `folder` is not the published one.
        DownloadError: no mirror has the published file.
    """
    dataset = plugins.load("datasets", name)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not terms_accepted:
        check_terms(name)
    return {
        file: _fetch_file(name, file, published, folder, manual_dir, offline)
        for file, published in dataset.FILES.items()
    }


def check_terms(name: str) -> None:
    """Check that a dataset whose terms the user has not accepted has none.

    Raises FetchError: it has terms.
    """
    terms = plugins.load("datasets", name).TERMS
    if terms:
        raise FetchError(
            f"only those who accepted its terms may use {name} ({terms}); "
            f"then put {name} into data.terms_accepted in the config"
        )


def _fetch_file(name, file, published, folder, manual_dir, offline):
    path, digests = folder / file, {"sha256": published["sha256"], "md5": published["md5"]}
    if staged := _staged_path(name, file, manual_dir):
        checked = _check_staged(name, file, staged, published["bytes"], digests)
        path.unlink(missing_ok=True)
        path.symlink_to(staged.resolve())
        return {**checked, "url": staged.resolve().as_uri()}
    if path.is_file():
        checked = download.check_file(path, size_bytes=published["bytes"], **digests)
        return {**checked, "url": None}
    urls = [url for url in published["urls"] if not offline or url.startswith(download.LOCAL)]
    if not urls:
        why = "offline is set" if published["urls"] else "it is never fetched automatically"
        raise FetchError(
            f"{name}: {file} is missing and {why}; put it into the folder that "
            f"data.manual_dir names (now {manual_dir or 'not set'})"
        )
    max_bytes = published.get("max_bytes", download.MAX_BYTES)
    return download.fetch_file(
        urls, path, size_bytes=published["bytes"], **digests, max_bytes=max_bytes
    )


def _staged_path(name, file, manual_dir):
    """The path of a file that the user staged; None if there is none."""
    if manual_dir is None:
        return None
    candidates = [Path(manual_dir) / name / file, Path(manual_dir) / file]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _check_staged(name, file, staged, size_bytes, digests):
    try:
        return download.check_file(staged, size_bytes=size_bytes, **digests)
    except download.WrongFile as error:
        hint = _mistaken_for(name, file, staged)
        raise FetchError(
            f"{name}: {staged} is not the published {file}: {error}"
            + (f"; this is {hint}" if hint else "")
        ) from error


def _mistaken_for(name, file, staged):
    """The name of another known file of the dataset with the MD5 of `staged`, or None."""
    dataset = plugins.load("datasets", name)
    sums = {entry["md5"]: other for other, entry in dataset.FILES.items() if other != file}
    sums |= {md5: other for other, md5 in getattr(dataset, "OTHERS", {}).items()}
    with open(staged, "rb") as content:
        return sums.get(hashlib.file_digest(content, "md5").hexdigest())
