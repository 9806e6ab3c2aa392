"""Bring the source files of a dataset: staged by hand, or from its mirrors."""

import hashlib
from pathlib import Path

from dlbench import Error
from dlbench.common import plugins
from dlbench.data import download
from dlbench.data.download import DownloadError


class FetchError(Error):
    """A dataset cannot be fetched; the message says what to do."""


def fetch(name, folder, *, manual_dir=None, offline=False, terms_accepted=False):
    """Bring the source files of dataset `name` into `folder`, each whole and as published.

    Files staged by hand are used where they lie: `folder` gets a link.

    Args:
        manual_dir: where files were put by hand, in it or in its folder `name`.
        offline: touch no network.
        terms_accepted: the user says that the dataset's terms are accepted.

    Returns:
        What was found: names mapped to bytes, sha256 and url.

    Raises:
        FetchError: terms are not accepted, or files are missing and cannot be fetched.
        DownloadError: no mirror has a file as it was published.
    """
    dataset = plugins.load("datasets", name)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not terms_accepted:
        see_terms_accepted(name)
    return {
        file: _fetch_file(name, file, known, folder, manual_dir, offline)
        for file, known in dataset.FILES.items()
    }


def see_terms_accepted(name):
    """Raise FetchError for a dataset with terms, which nobody has accepted."""
    terms = plugins.load("datasets", name).TERMS
    if terms:
        raise FetchError(
            f"{name} may be used by those only who accepted its terms ({terms}); "
            f"then put {name} into data.terms_accepted in the config"
        )


def _fetch_file(name, file, known, folder, manual_dir, offline):
    path, digests = folder / file, {"sha256": known["sha256"], "md5": known["md5"]}
    if staged := _staged(name, file, manual_dir):
        found = _staged_as_published(name, file, staged, known["bytes"], digests)
        path.unlink(missing_ok=True)
        path.symlink_to(staged.resolve())
        return {**found, "url": staged.resolve().as_uri()}
    remote = [url for url in known["urls"] if not url.startswith(("file:", "package:"))]
    if path.is_file():
        return {**download.check_file(path, size_bytes=known["bytes"], **digests), "url": None}
    if not known["urls"] or (offline and len(remote) == len(known["urls"])):
        why = "offline is set" if known["urls"] else "it is never fetched automatically"
        raise FetchError(
            f"{name}: {file} is missing and {why}; put it into the folder that "
            f"data.manual_dir names (now {manual_dir or 'not set'})"
        )
    urls = [url for url in known["urls"] if not (offline and url in remote)]
    return download.fetch_file(urls, path, size_bytes=known["bytes"], **digests)


def _staged(name, file, manual_dir):
    """The file that was put there by hand, or None."""
    if manual_dir is None:
        return None
    places = [Path(manual_dir) / name / file, Path(manual_dir) / file]
    return next((place for place in places if place.is_file()), None)


def _staged_as_published(name, file, staged, size_bytes, digests):
    try:
        return download.check_file(staged, size_bytes=size_bytes, **digests)
    except DownloadError as error:
        hint = _mistaken_for(name, file, staged)
        raise FetchError(
            f"{name}: {staged} is not the published {file}: {error}"
            + (f"; this is {hint}" if hint else "")
        ) from error


def _mistaken_for(name, file, staged):
    """The other archive of a dataset that a file is, by its MD5, or None."""
    dataset = plugins.load("datasets", name)
    sums = {known["md5"]: other for other, known in dataset.FILES.items() if other != file}
    sums |= {md5: other for other, md5 in getattr(dataset, "OTHERS", {}).items()}
    with open(staged, "rb") as content:
        return sums.get(hashlib.file_digest(content, "md5").hexdigest())
