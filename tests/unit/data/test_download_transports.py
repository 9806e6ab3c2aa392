"""fetch_dataset: files of this machine, S3 and iRODS."""

import hashlib
import json
import sys

import pytest

from dlbench.data.fetch_dataset import DownloadError, fetch_file
from dlbench.data.transports import TransportError
from support.machines.downloads import CONTENT, interrupt

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def mirror(tmp_path):
    """A file of this machine that takes more than one read."""
    mirror = tmp_path / "mirror" / "data.bin"
    mirror.parent.mkdir()
    mirror.write_bytes(CONTENT * 3)
    return mirror


def assert_continued(urls, path, replace):
    """An interrupted download goes on; not so when the file was replaced meanwhile."""
    done = interrupt(urls, path)
    assert 0 < done < 3 * len(CONTENT)
    path.with_name("data.bin.part").write_bytes(bytes(done))  # to be known again
    fetch_file(urls, path)
    assert path.read_bytes() == bytes(done) + (CONTENT * 3)[done:]

    path.unlink()
    interrupt(urls, path)
    replace(CONTENT[::-1] * 3)
    fetch_file(urls, path)
    assert path.read_bytes() == CONTENT[::-1] * 3


def test_a_file_of_this_machine_is_copied_and_continued(path, mirror):
    assert_continued([mirror.as_uri()], path, mirror.write_bytes)
    with pytest.raises(DownloadError, match="No such file"):
        fetch_file(["file:///nowhere/data.bin"], path.with_name("other.bin"))


@pytest.fixture(scope="module")
def s3():
    """An S3 server on this machine, as the AWS tools find one."""
    pytest.importorskip("boto3")
    moto_server = pytest.importorskip("moto.server")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import boto3

        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        yield client
    server.stop()


@pytest.mark.ci
def test_an_s3_object_is_fetched_and_continued(s3, path):
    def put(content):
        s3.put_object(Bucket="bucket", Key="folder/data.bin", Body=content)

    put(CONTENT * 3)
    assert_continued(["s3://bucket/folder/data.bin"], path, put)
    put(b"")
    path.unlink()
    fetch_file(["s3://bucket/folder/data.bin"], path, 0, hashlib.sha256(b"").hexdigest())
    assert path.read_bytes() == b""
    with pytest.raises(DownloadError, match=r"S3 refuses: .*404"):
        fetch_file(["s3://bucket/nothing"], path.with_name("none"))


@pytest.mark.parametrize(("scheme", "package"), [("s3", "boto3"), ("irods", "irods.exception")])
def test_a_missing_storage_package_is_named_with_its_remedy(path, monkeypatch, scheme, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DownloadError, match="uv sync --extra storage"):
        fetch_file([f"{scheme}://bucket/data.bin"], path)


def test_irods_urls_name_a_path_in_a_zone_and_no_host():
    from dlbench.data.transports.irods import object_path

    assert object_path("irods:///zone/home/two%20words.tar") == "/zone/home/two words.tar"
    for url in ("irods://host/zone/data.bin", "irods:///data.bin"):
        with pytest.raises(TransportError, match="expected irods:///zone/collection/object"):
            object_path(url)


def test_irods_without_its_configuration_says_what_to_do(path, tmp_path, monkeypatch):
    pytest.importorskip("irods")
    environment = tmp_path / "irods_environment.json"
    monkeypatch.setenv("IRODS_ENVIRONMENT_FILE", str(environment))
    monkeypatch.setenv("IRODS_AUTHENTICATION_FILE", str(tmp_path / ".irodsA"))
    url = "irods:///zone/home/alice/data.bin"
    with pytest.raises(DownloadError, match=r"no iRODS environment in .*: run iinit first"):
        fetch_file([url], path)
    account = {"irods_host": "127.0.0.1", "irods_port": 9, "irods_user_name": "alice"}
    environment.write_text(json.dumps(account | {"irods_zone_name": "zone"}))
    with pytest.raises(DownloadError, match=r"no iRODS password .*: run iinit first"):
        fetch_file([url], path)
    anonymous = account | {"irods_user_name": "anonymous", "irods_zone_name": "zone"}
    environment.write_text(json.dumps(anonymous))
    with pytest.raises(DownloadError, match=r"iRODS refuses /zone/home/alice/data\.bin"):
        fetch_file([url], path)
