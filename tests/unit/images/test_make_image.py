"""make_image: how images are made, what is refused, and what could not be made."""

import json
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import files
from dlbench.images import make_image, oci, trainer_image
from support.images import image_files
from support.images.image_files import LAYER, Blobs, archive, make, program, root_folder, sif

pytestmark = pytest.mark.usefixtures("place")


def test_an_archive_is_named_by_its_manifest_and_gets_the_marker():
    blobs = Blobs()
    blobs.index(entry := blobs.image([LAYER]))
    Path("x.tar").write_bytes(image_files.tar(blobs))
    made = make("x.tar")
    assert (made.kind, made.digest, made.marked) == ("oci", entry["digest"], True)
    assert made.image_id == made.digest
    assert made.environment == {"PATH": "/bin"}
    *_, layer = oci.read_image(made.path)[1]["layers"]
    content = (made.path / "blobs" / layer["digest"].replace(":", "/")).read_bytes()
    assert json.dumps({"image_id": made.digest, "image": "x"}).encode() in content


def test_a_folder_is_used_where_it_lies_with_a_marker_beside_it():
    made = make(root_folder())
    assert (made.kind, made.path, made.marked) == ("folder", Path("root").absolute(), False)
    assert made.image_id == made.digest
    marker = json.loads((made.marker / trainer_image.MARKER).read_text())
    assert marker == {"image_id": made.digest, "image": "x"}
    assert not Path("root", trainer_image.MARKER).exists()


@pytest.mark.parametrize("marker", ['{"image_id": "build-1"}', "[]", "no json", '{"image": "x"}'])
def test_the_marker_that_an_image_has_is_kept_unless_it_says_nothing(marker):
    made = make(root_folder(marker=marker))
    marked = "build-1" in marker
    assert (made.image_id, made.marked) == ("build-1" if marked else made.digest, marked)


@pytest.mark.parametrize("marker", ['{"image_id": "build-1"}', "[]"])
def test_apptainer_is_asked_for_the_marker_and_the_environment_of_a_sif(marker):
    path = sif()
    program(
        "apptainer",
        f"""case "$*" in *" env") echo PATH=/opt/bin; echo A=1;;
        "--silent exec --cleanenv {Path.cwd()}/x.sif sh -c "*cat*) echo '{marker}';;
        *) exit 1;; esac""",
    )
    made = make(path)
    assert made.kind == "sif"
    assert made.digest == f"sha256:{files.sha256(path)}"
    assert made.marked == ("build-1" in marker)
    assert made.environment == {"PATH": "/opt/bin"}


@pytest.mark.parametrize("fails", ["sh", "env"])
def test_what_cannot_be_looked_into_is_an_error_with_the_words_of_the_tool(fails):
    path = sif()
    program(
        "apptainer",
        f"""echo INFO: hello >&2; echo FATAL: no user namespaces >&2; echo more >&2
        case "$*" in *"x.sif {fails}"*) exit 255;; esac""",
    )
    with pytest.raises(Error) as error:
        make(path)
    assert str(error.value) == (
        f"{Path.cwd()}/x.sif: apptainer cannot run {fails} in it (exit code 255): "
        "FATAL: no user namespaces"
    )
    assert not Path(trainer_image.image_path("x")).exists()


@pytest.mark.parametrize("link", ["etc", "etc/dlbench-image.json"])
def test_a_marker_behind_a_link_is_none_of_the_image(link):
    Path(root_folder("other", marker='{"image_id": "the host"}'))
    Path(root_folder(), link).parent.mkdir(exist_ok=True)
    Path("root/etc").rename("root/usr") if link == "etc" else None
    Path("root", link).symlink_to(Path("other", link).absolute())
    assert not make("root").marked


def test_a_layout_is_an_image_as_an_archive_of_it_is():
    blobs = Blobs()
    layout_of(blobs.index(entry := blobs.image([LAYER])), "layout")
    assert trainer_image.origin(image_files.settings("layout")) == "archive"
    made = make("layout")
    assert (made.kind, made.digest) == ("oci", entry["digest"])
    assert oci.read_image("layout")[0] == entry["digest"]  # ours lies elsewhere
    Path("layout/blobs/sha256", entry["digest"][7:]).write_text("{}")
    with pytest.raises(Error, match=r"layout is damaged: blob .* does not match its digest"):
        make("layout")


def test_a_sif_without_apptainer_is_refused():
    Path("x.sif").write_bytes(image_files.SIF)
    with pytest.raises(Error, match=r"x\.sif is a SIF file; apptainer or singularity is not on"):
        make("x.sif")


@pytest.mark.parametrize("source", [archive, root_folder])
def test_an_image_with_another_digest_than_the_pinned_one_is_refused_with_both(source):
    source = source()
    made = make(source)
    assert make(source, digest=made.digest).digest == made.digest
    pin = "sha256:" + "0" * 64
    with pytest.raises(Error) as error:
        make(source, digest=pin)
    assert str(error.value) == (
        f"image x: expected the pinned digest {pin}, found {made.digest} at {source}: the "
        "image was replaced, or the pin is old"
    )


def test_a_pin_that_came_later_has_the_image_looked_at_again():
    made = make(archive())
    for pin, known in ((made.digest, made.digest), ("sha256:" + "0" * 64, None)):
        pinned = image_files.settings("x.tar", digest=pin)
        assert trainer_image.digest("x", pinned) == known


def test_an_archive_for_another_machine_is_refused():
    blobs = Blobs()
    Path("x.tar").write_bytes(
        image_files.tar(blobs.index(blobs.image([LAYER], architecture=image_files.OTHER)))
    )
    with pytest.raises(
        Error, match=f"the image is for the architecture {image_files.OTHER}; this machine is"
    ):
        make("x.tar")


def layout_of(blobs, folder):
    for name, content in blobs.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def engine(name, digest_="sha256:none"):
    program(
        name,
        f"""echo "$(basename $0) $*" >> said
        for last; do :; done
        case $1 in push|copy) last=${{last#oci:}}; cp -r made/. "${{last%:*}}";;
        inspect) echo a warning >&2; echo {digest_};;
        save) tar -C made -cf "${{2#--output=}}" .;; esac""",
    )
    Path("bin/basename").exists() or Path("bin/basename").symlink_to("/usr/bin/basename")


@pytest.fixture
def pushed():
    blobs = Blobs()
    layout_of(blobs.index(entry := blobs.image([LAYER])), "made")
    return entry["digest"]


def test_skopeo_pulls_what_it_has_asked_the_digest_of(pushed):
    engine("skopeo", pushed)
    made = make("docker://site:5000/a/b:1.0")
    assert (made.kind, made.digest) == ("oci", pushed)
    assert image_files.recorded_output().splitlines() == [
        "skopeo inspect --format={{.Digest}} docker://site:5000/a/b:1.0",
        f"skopeo copy docker://site:5000/a/b@{pushed} oci:results/images/x/oci:image",
    ]


@pytest.mark.parametrize("how", ["name", "key"])
def test_a_pinned_image_is_pulled_by_its_digest(pushed, how):
    engine("skopeo")
    pin = "sha256:" + "1" * 64
    made = make(f"docker://a@{pin}") if how == "name" else make("docker://a", digest=pin)
    # That of the list of architectures, which the registry knows it by.
    assert made.digest == pin
    assert (
        image_files.recorded_output()
        == f"skopeo copy docker://a@{pin} oci:results/images/x/oci:image\n"
    )


def test_a_name_pinned_to_one_digest_and_a_key_to_another_is_refused(pushed):
    engine("skopeo")
    with pytest.raises(Error, match=r"expected the pinned digest sha256:2+, found sha256:1+ at"):
        make(f"docker://a@sha256:{'1' * 64}", digest=f"sha256:{'2' * 64}")


@pytest.mark.parametrize("name", ["podman", "docker"])
def test_without_skopeo_an_engine_pulls(pushed, name):
    engine(name)
    assert make("docker://a:1").digest == pushed
    first, second = image_files.recorded_output().splitlines()
    assert first == f"{name} pull a:1"
    assert second == (
        "docker save --output=results/images/x/saved.tar a:1"
        if name == "docker"
        else f"{name} push a:1 oci:results/images/x/oci:image"
    )


def test_where_nothing_can_pull_it_is_said_what_could():
    with pytest.raises(Error) as error:
        make("docker://a")
    assert str(error.value) == (
        "docker://a cannot be pulled: install one of skopeo, buildah, podman, docker and "
        "apptainer or singularity; none is on the PATH of this machine"
    )


def test_an_engine_builds_with_the_base_and_the_binds_that_are_given(pushed):
    engine("podman")
    made = make("envs/train", base="debian:12", build_binds=["/ca che:/mnt"])
    assert made.digest == pushed
    assert made.image_id.startswith("build-")
    build, push, remove = image_files.recorded_output().splitlines()
    assert build == (
        "podman build --volume=/ca che:/mnt --build-arg=ENVIRONMENT=x "
        f"--build-arg=IMAGE_ID={made.image_id} --build-arg=BASE=debian:12 "
        "--file=envs/Containerfile --tag=localhost/dlbench/build-x envs/train"
    )
    assert push == "podman push localhost/dlbench/build-x oci:results/images/x/oci:image"
    assert remove == "podman rmi localhost/dlbench/build-x"


def test_a_base_that_is_a_file_is_given_as_an_archive_and_two_builds_are_two_images(pushed):
    engine("podman")
    made = make("envs/train", base=archive("base.tar"))
    assert f"--build-arg=BASE=oci-archive:{Path.cwd()}/base.tar" in image_files.recorded_output()
    assert make("envs/train").image_id != made.image_id


def test_where_nothing_can_build_it_is_said_what_else_can_be_done():
    with pytest.raises(Error) as error:
        make("envs/train")
    for words in (
        "image x cannot be built: none of buildah, podman, docker and apptainer",
        "build it elsewhere and give it as a file",
        "images: {x: {source: ...}}",
    ):
        assert words in str(error.value)


@pytest.fixture
def forms(tmp_path):
    """Paths of three forms, of which the last two could not be made, for one reason."""
    paths = [tmp_path / f"{name}.json" for name in "abc"]
    paths[0].write_text('{"image": "x"}')
    for path in paths[1:]:
        with trainer_image.record_failure(path):
            raise Error("no tool to unpack it")
    return paths


def test_failures_are_an_error_with_each_reason_once(forms):
    with pytest.raises(Error) as error:
        make_image.check(forms)
    assert str(error.value) == "no tool to unpack it"


def test_forms_without_a_failure_pass(forms, tmp_path):
    make_image.check([forms[0], tmp_path / "not_made_yet.json"])
