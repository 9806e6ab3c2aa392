"""fetch_dataset: files staged by hand, accepted terms, and machines without network."""

import contextlib
import hashlib

import pytest

from dlbench.common import plugins
from dlbench.data import fetch_dataset
from dlbench.data.datasets import digits, imagenet, mnist
from dlbench.data.fetch_dataset import DownloadError, FetchError


def test_files_staged_by_hand_are_used_where_they_lie_if_they_are_the_published_ones(tmp_path):
    fetch_dataset.fetch("digits", tmp_path / "first")
    staged = tmp_path / "manual" / "digits"
    staged.mkdir(parents=True)
    (tmp_path / "first" / "digits.csv.gz").rename(staged / "digits.csv.gz")
    found = fetch_dataset.fetch("digits", tmp_path / "second", manual_dir=tmp_path / "manual")
    assert (tmp_path / "second" / "digits.csv.gz").resolve() == staged / "digits.csv.gz"
    assert found["digits.csv.gz"]["sha256"] == digits.FILES["digits.csv.gz"]["sha256"]
    (tmp_path / "digits.csv.gz").write_bytes(b"something else")
    with pytest.raises(FetchError, match=r"published digits\.csv\.gz: expected bytes 57523"):
        fetch_dataset.fetch("digits", tmp_path / "source", manual_dir=tmp_path)


def test_swapped_archives_are_recognised_by_their_sums(tmp_path, monkeypatch):
    staged = tmp_path / "ILSVRC2012_img_train.tar"
    staged.write_bytes(b"validation images")
    md5 = hashlib.md5(b"validation images").hexdigest()
    changed = {name: dict(known) for name, known in imagenet.FILES.items()}
    changed["ILSVRC2012_img_val.tar"]["md5"] = md5
    monkeypatch.setattr(imagenet, "FILES", changed)
    with pytest.raises(FetchError, match=r"; this is ILSVRC2012_img_val\.tar"):
        fetch_dataset.fetch("imagenet", tmp_path / "s", manual_dir=tmp_path, terms_accepted=True)


def test_terms_must_be_accepted_and_files_staged(tmp_path):
    with pytest.raises(FetchError, match=r"put imagenet into data\.terms_accepted"):
        fetch_dataset.fetch("imagenet", tmp_path)
    with pytest.raises(FetchError, match=r"is never fetched automatically; put it into"):
        fetch_dataset.fetch("imagenet", tmp_path, terms_accepted=True)


def test_a_dataset_may_raise_the_limit_of_what_is_fetched(tmp_path, monkeypatch):
    source = tmp_path / "x.bin"
    source.write_bytes(bytes(9))
    entry = {"bytes": None, "sha256": None, "md5": None, "urls": [source.as_uri()]}
    dataset = plugins.load("datasets", "cifar10")
    monkeypatch.setattr(fetch_dataset, "MAX_BYTES", 5)
    for more, fits in (({}, False), ({"max_bytes": 8}, False), ({"max_bytes": 9}, True)):
        monkeypatch.setattr(dataset, "FILES", {"x.bin": entry | more})
        refused = pytest.raises(DownloadError, match=r"more than the \d allowed")
        fetched = contextlib.nullcontext() if fits else refused
        with fetched:
            fetch_dataset.fetch("cifar10", tmp_path / "source")


def test_offline_touches_no_network_and_says_what_is_missing_and_where_to_put_it(tmp_path):
    name, known = next(iter(mnist.FILES.items()))
    with pytest.raises(FetchError) as raised:
        fetch_dataset.fetch("mnist", tmp_path, offline=True)
    for words in (f"{name} (bytes 9912422, sha256", "offline is set", "data.manual_dir names"):
        assert words in str(raised.value)
    assert known["sha256"] in str(raised.value) and known["urls"][1] in str(raised.value)
    assert fetch_dataset.fetch("digits", tmp_path, offline=True)
