"""oci: reading archives of small images, and adding a file to a layout."""

import gzip
import io
import json
import random
import shutil
import subprocess
import tarfile
import zlib

import pytest

from dlbench import Error
from dlbench.images import oci, runtimes
from support.images import image_files
from support.images.image_files import (
    LAYER,
    MINE,
    OTHER,
    SECOND,
    Blobs,
    digest,
    image_of,
    link,
    tar,
)

MARKER = b'{"image_id": "x"}\n'


@pytest.fixture
def unpacked(tmp_path):
    """A function that unpacks files given as {path: bytes}, and returns the layout."""

    def make(files, compress=bytes):
        archive, folder = tmp_path / "image.tar", tmp_path / "layout"
        archive.write_bytes(compress(tar(files)))
        folder.mkdir()
        oci.unpack(archive, folder)
        return folder

    return make


# Reading.


@pytest.mark.parametrize("packed", [False, True])
def test_an_oci_archive_becomes_a_layout(unpacked, packed):
    blobs = Blobs()
    entry = blobs.image([LAYER, SECOND], packed=packed)
    found, manifest, config = oci.read_image(unpacked(blobs.index(entry)))
    assert found == entry["digest"]
    assert len(manifest["layers"]) == 2
    assert config["config"]["Env"] == ["PATH=/bin", "A=1"]


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_a_compressed_archive_is_read_where_tar_reads_it(unpacked, compress):
    blobs = Blobs()
    blobs.index(blobs.image([LAYER]))
    if compress is gzip.compress:
        assert oci.read_image(unpacked(blobs, compress))
    else:
        with pytest.raises(Error, match="cannot be read as an image archive"):
            unpacked(blobs, compress)


def test_an_archive_of_docker_save_becomes_a_layout(unpacked):
    layout = unpacked(image_of({"1/layer.tar": LAYER, "2/layer.tar": SECOND}))
    _, manifest, config = oci.read_image(layout)
    assert manifest["layers"] == [
        {"mediaType": oci.LAYER, "digest": digest(one), "size": len(one)} for one in (LAYER, SECOND)
    ]
    assert config["architecture"] == MINE


def test_equal_layers_of_docker_save_are_one_file_and_gzipped_ones_are_said_to_be_so(unpacked):
    files = image_of({"1/layer.tar": LAYER, "2/layer.tar": LAYER})
    files["1/layer.tar"] = gzip.compress(LAYER)
    files["2/layer.tar"] = link("2/layer.tar", "../1/layer.tar")
    _, manifest, _ = oci.read_image(unpacked(files))
    layers = [(layer["digest"], layer["mediaType"]) for layer in manifest["layers"]]
    assert layers == [(digest(files["1/layer.tar"]), oci.LAYER + "+gzip")] * 2


def test_of_several_architectures_this_machines_is_taken(unpacked):
    blobs = Blobs()
    mine, other, windows, attestation = (
        blobs.image([tar({name: b"x"})], platform={"os": system, "architecture": architecture})
        for name, system, architecture in (
            ("1", "linux", MINE),
            ("2", "linux", OTHER),
            ("3", "windows", MINE),
            ("4", "unknown", "unknown"),
        )
    )
    listed = blobs.add(
        {"schemaVersion": 2, "manifests": [other, windows, attestation, mine]}, image_files.INDEX
    )
    for entries in ([other, mine], [listed]):
        blobs.index(*entries)
    layout = unpacked(blobs)
    assert oci.read_image(layout)[0] == mine["digest"]


def test_an_image_for_another_machine_is_refused_with_both_names(unpacked):
    blobs = Blobs()
    layout = unpacked(blobs.index(blobs.image([LAYER], architecture=OTHER)))
    with pytest.raises(Error, match=f"is for the architecture {OTHER}; this machine is {MINE}$"):
        oci.read_image(layout)


def test_several_images_of_which_none_is_for_this_machine_are_counted(unpacked):
    blobs = Blobs()
    other = {"os": "linux", "architecture": OTHER}
    entries = [blobs.image([tar({name: b""})], platform=other) for name in "ab"]
    layout = unpacked(blobs.index(*entries))
    with pytest.raises(Error, match=f"expected one image for linux on {MINE}, found 0 among 2"):
        oci.read_image(layout)


def test_an_image_without_one_of_its_layers_is_not_whole(unpacked):
    blobs = Blobs()
    blobs.index(blobs.image([LAYER]))
    del blobs[f"blobs/sha256/{digest(LAYER)[7:]}"]
    with pytest.raises(Error, match=f"is incomplete: the layer {digest(LAYER)} is missing"):
        oci.read_image(unpacked(blobs))


@pytest.mark.parametrize(
    "index",
    [b"", b"[]", b'{"manifests": []}', b'{"manifests": 3}', b'{"manifests": [{"digest": 5}]}',
     b'{"manifests": [{"digest": "sha256:../../index.json"}]}'],
)  # fmt: skip
def test_a_layout_that_makes_no_sense_is_refused(unpacked, index):
    blobs = Blobs({"oci-layout": b"{}", "index.json": index})
    with pytest.raises(Error, match=r"not an image layout|found 0 among 0"):
        oci.read_image(unpacked(blobs))


def test_a_damaged_blob_is_named(unpacked):
    blobs = Blobs()
    blobs.index(blobs.image([LAYER]))
    name = f"blobs/sha256/{digest(LAYER)[7:]}"
    blobs[name] = LAYER.replace(b"hello", b"hullo")
    with pytest.raises(Error, match=f"is damaged: blob {digest(LAYER)[7:]} does not match its d"):
        unpacked(blobs)


def test_a_damaged_layer_of_docker_save_is_found(unpacked):
    files = image_of({"1/layer.tar": LAYER})
    files["1/layer.tar"] = LAYER.replace(b"hello", b"hullo")
    with pytest.raises(Error, match=f"damaged: the layer {digest(LAYER)} does not match its"):
        unpacked(files)


@pytest.mark.parametrize(
    "entries",
    [b"", b"[]", b"[{}]", b'[{"Config": "no.json", "Layers": []}]',
     b'[{"Config": "abc.json", "Layers": ["no.tar"]}]',
     b'[{"Config": "abc.json", "Layers": ["../../image.tar"]}]',
     b'[{"Config": "abc.json", "Layers": ["/etc/passwd"]}]',
     b'[{"Config": "abc.json", "Layers": []}]',
     b'[{"Config": "manifest.json", "Layers": []}]'],
)  # fmt: skip
def test_nonsense_instead_of_docker_save_is_refused(unpacked, tmp_path, entries):
    files = image_of({"1/layer.tar": LAYER}) | {"manifest.json": entries}
    with pytest.raises(Error, match="expected one image as docker save writes it"):
        unpacked(files)
    assert (tmp_path / "image.tar").is_file()


def test_an_archive_with_no_image_in_it_is_told_what_one_looks_like(unpacked):
    words = "is no image archive: expected oci-layout or manifest.json.*save --format oci-archive"
    with pytest.raises(Error, match=words):
        unpacked({"bin/sh": b"", "etc/passwd": b""})


DAMAGED = gzip.compress(tar({"index.json": random.Random(1).randbytes(400)}))
DAMAGED = DAMAGED[:200] + bytes(range(30)) + DAMAGED[230:]


@pytest.mark.parametrize("content", [b"", b"no tar at all", b"\x1f\x8b\x08\0junk", DAMAGED])
def test_what_is_no_tar_file_or_a_damaged_one_is_refused(tmp_path, content):
    archive = tmp_path / "image.tar"
    archive.write_bytes(content)
    with pytest.raises(Error, match=r"image\.tar cannot be read as an image archive"):
        oci.unpack(archive, tmp_path / "layout")


@pytest.mark.parametrize("part", [0.1, 0.9])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_archive_that_was_cut_short_is_refused(tmp_path, part, compress):
    blobs = Blobs()
    content = compress(tar(blobs.index(blobs.image([tar({"a": random.randbytes(1 << 20)})]))))
    archive = tmp_path / "image.tar"
    archive.write_bytes(content[: int(len(content) * part)])
    (tmp_path / "layout").mkdir()
    with pytest.raises(Error):
        oci.unpack(archive, tmp_path / "layout")
        oci.read_image(tmp_path / "layout")


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../outside"),
        link("inside", "../../outside"),
        link("inside", "/etc/passwd"),
        link("inside", "../../outside", tarfile.LNKTYPE),
        link("pipe", "", tarfile.FIFOTYPE),
        link("disk", "", tarfile.BLKTYPE),
    ],
    ids=["parent", "link to parent", "link to root", "hard link", "pipe", "device"],
)
def test_members_that_reach_outside_or_are_no_files_are_refused(unpacked, tmp_path, member):
    with pytest.raises(Error, match="cannot be read as an image archive"):
        unpacked({member.name: member})
    assert not (tmp_path / "outside").exists()


def test_nothing_is_written_where_an_absolute_name_or_a_circle_of_links_says(unpacked, tmp_path):
    place = tmp_path / "absolute"
    with pytest.raises(Error, match="absolute is no plain file inside the archive"):
        unpacked({str(place): b"x"})
    assert not place.exists()
    (tmp_path / "layout").rmdir()
    with pytest.raises(Error, match="cannot be read as an image archive"):
        unpacked({"a": link("a", "b"), "b": link("b", "a")})


def test_blobs_that_are_links_are_what_they_name_in_the_archive(unpacked):
    blobs = Blobs()
    blobs.index(entry := blobs.image([LAYER]))
    name = f"blobs/sha256/{digest(LAYER)[7:]}"
    blobs["elsewhere"] = blobs.pop(name)
    blobs[name] = link(name, "../../elsewhere")
    layout = unpacked(blobs)
    assert oci.read_image(layout)[0] == entry["digest"]
    assert not (layout / name).is_symlink()


# Adding a file.


@pytest.fixture(params=["oci", "docker media types", "docker save"])
def layout(request, unpacked):
    blobs = Blobs()
    if request.param == "docker save":
        return unpacked(image_of({"1/layer.tar": LAYER, "2/layer.tar": SECOND}))
    entry = blobs.image([LAYER, SECOND], docker=request.param != "oci")
    return unpacked(blobs.index(entry))


def blob(layout, descriptor):
    content = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert digest(content) == descriptor["digest"]
    assert len(content) == descriptor["size"]
    return content


def test_an_added_file_is_one_more_layer_and_all_parts_fit(layout):
    before, old, _ = oci.read_image(layout)
    after = oci.add_file(layout, "etc/dlbench-image.json", MARKER)
    found, manifest, config = oci.read_image(layout)
    assert found == after != before
    assert [one["digest"] for one in manifest["layers"][:-1]] == [
        one["digest"] for one in old["layers"]
    ]
    types = [manifest["mediaType"], manifest["config"]["mediaType"]]
    types += [one["mediaType"] for one in manifest["layers"]]
    assert all(one.startswith("application/vnd.oci.image.") for one in types)
    assert json.loads(blob(layout, manifest["config"])) == config
    contents = [blob(layout, layer) for layer in manifest["layers"]]
    plain = [gzip.decompress(c) if c[:2] == b"\x1f\x8b" else c for c in contents]
    assert config["rootfs"]["diff_ids"] == [digest(one) for one in plain]
    for descriptor, content in zip(manifest["layers"], contents, strict=True):
        assert ("gzip" in descriptor["mediaType"]) == (content[:2] == b"\x1f\x8b")
    with tarfile.open(fileobj=io.BytesIO(plain[-1])) as added:
        (member,) = added.getmembers()
        assert (member.name, member.mode, member.mtime) == ("etc/dlbench-image.json", 0o644, 0)
        assert added.extractfile(member).read() == MARKER


def test_the_layout_has_one_image_then_also_for_docker_load(layout):
    after = oci.add_file(layout, "etc/marker", MARKER)
    (entry,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    assert entry["digest"] == after
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "image"}
    blob(layout, entry)
    (saved,) = json.loads((layout / "manifest.json").read_bytes())
    _, manifest, config = oci.read_image(layout)
    assert json.loads((layout / saved["Config"]).read_bytes()) == config
    assert [f"sha256:{name.rpartition('/')[2]}" for name in saved["Layers"]] == [
        layer["digest"] for layer in manifest["layers"]
    ]


def test_the_same_file_in_the_same_image_gives_the_same_digest(layout, tmp_path):
    shutil.copytree(layout, tmp_path / "copy")
    first = oci.add_file(layout, "etc/marker", MARKER)
    assert oci.add_file(tmp_path / "copy", "etc/marker", MARKER) == first
    assert oci.add_file(layout, "etc/marker", MARKER) != first


def test_a_config_without_history_gets_one(unpacked):
    files = image_of({"1/layer.tar": LAYER})
    config = json.loads(files["abc.json"]) | {"history": None}
    layout = unpacked(files | {"abc.json": json.dumps(config).encode()})
    oci.add_file(layout, "etc/marker", MARKER)
    assert oci.read_image(layout)[2]["history"] == [{"created_by": "dlbench: /etc/marker"}]


# What others make of it.


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


@needs("skopeo")
def test_skopeo_reads_what_was_written_and_copies_it(layout, tmp_path):
    after = oci.add_file(layout, "etc/marker", MARKER)
    source = f"oci:{layout}:{runtimes.TAG}"
    command = ["skopeo", "inspect", "--format={{.Digest}}", source]
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    assert output.stdout.strip() == after, output.stderr
    for target in (f"oci-archive:{tmp_path}/again.tar", f"docker-archive:{tmp_path}/saved.tar:x:1"):
        command = ["skopeo", "--insecure-policy", "copy", source, target]
        copied = subprocess.run(command, capture_output=True, text=True, check=False)
        assert copied.returncode == 0, copied.stderr
    for name in ("again", "saved"):
        (tmp_path / name).mkdir()
        oci.unpack(tmp_path / f"{name}.tar", tmp_path / name)
        assert len(oci.read_image(tmp_path / name)[1]["layers"]) == 3


@needs("apptainer")
def test_apptainer_sees_the_added_file(layout, tmp_path):
    oci.add_file(layout, "etc/dlbench-image.json", MARKER)
    command = ["apptainer", "build", "--sandbox", tmp_path / "root", f"oci:{layout}"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "root/etc/dlbench-image.json").read_bytes() == MARKER
    assert (tmp_path / "root/etc/more").read_bytes() == b"more\n"
