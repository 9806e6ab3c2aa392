"""nccl_log: what NCCL prints of its transports, in the forms of several versions."""

import os

import pytest

from dlbench.machine import nccl_log

ONE_NODE = """
n1:7:7 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
NCCL version 2.21.5+cuda12.4
n1:7:9 [0] NCCL INFO Using network Socket
n1:7:9 [0] NCCL INFO NVLS multicast support is available on dev 0
n1:7:9 [0] NCCL INFO Channel 00/24 :    0   1
n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
n1:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
n1:7:9 [0] NCCL INFO Connected all rings
"""
OLD = """
n1:7:9 [0] NCCL INFO Channel 00 : 0[1000] -> 1[24000] via P2P/direct pointer/read
n1:7:9 [0] NCCL INFO Channel 00 : 3[3] -> 2[2] via SHM/direct/direct
n1:7:9 [0] NCCL INFO Channel 00 : 0[1000] -> 8[1000] [send] via NET/Socket/0
"""
TWO_NODES = """
n1:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0
n1:7:9 [0] NCCL INFO Using network IB
n1:7:9 [0] NCCL INFO NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)
n1:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n1:7:9 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/1/GDRDMA/flush=None
n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0
"""
# Of aws-ofi-nccl over EFA and over Slingshot, as in the logs that nccl_log.py names.
LIBFABRIC = """
n1:7:9 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.17.1
n1:7:9 [0] NCCL INFO NET/OFI Using Libfabric version 2.3
n1:7:9 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)
n1:7:9 [0] NCCL INFO Using network Libfabric
n1:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA
n1:7:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/Libfabric/3(0)/GDRDMA
"""
SLINGSHOT = """
n1:7:9 [0] NCCL INFO NET/OFI Using aws-ofi-rccl 1.4.0
n1:7:9 [0] NCCL INFO NET/OFI Selected Provider is cxi
n1:7:9 [0] NCCL INFO Using network AWS Libfabric
n1:7:9 [0] NCCL INFO Channel 00 : 3[3] -> 4[0] [send] via NET/AWS Libfabric/1
"""
TUNING = """
n1:7:9 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}
n1:7:9 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo Tree proto LL channel{Lo..Hi}={0..1}
n1:7:9 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}
n1:7:9 [0] NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008
n1:7:9 [0] NCCL INFO 8 Bytes -> Algo 0 proto 0 time 25.200924
n1:7:9 [0] NCCL INFO 8 Bytes -> Algo 9 proto 3 time 25.200924
"""


def parse(text):
    return nccl_log.parse(text.splitlines())


def test_version_network_transports_and_nvlink_sharp_are_read():
    assert parse(ONE_NODE) == {
        "version": "2.21.5+cuda12.4", "network": "Socket", "transports": {"P2P/CUMEM/read": 2},
        "nvls": True, "algorithms": {},
    }  # fmt: skip
    # Connections over different ports are one transport.
    assert parse(TWO_NODES) == {
        "version": None, "network": "IB", "transports": {"NET/IB": 1, "NET/IB/GDRDMA": 2},
        "nvls": False, "algorithms": {},
    }  # fmt: skip
    for text in ("", "a line of something else\n", "NCCL WARN no plugin\n"):
        assert parse(text) is None


def test_lines_of_old_versions_and_of_rccl_are_read():
    assert parse(OLD)["transports"] == {
        "NET/Socket": 1, "P2P/direct pointer/read": 1, "SHM/direct/direct": 1,
    }  # fmt: skip
    amd = "n1:7:9 [0] NCCL INFO RCCL version 2.20.5+hip6.2 HEAD:d380693+"
    assert parse(amd)["version"] == "2.20.5+hip6.2"


@pytest.mark.parametrize(
    ("text", "network", "transport", "gpudirect_rdma"),
    [
        (LIBFABRIC, "Libfabric (efa; fabric is efa-direct; 32 nics; aws-ofi-nccl 1.17.1)",
         "NET/Libfabric/GDRDMA 2", True),
        (SLINGSHOT, "AWS Libfabric (cxi; aws-ofi-rccl 1.4.0)", "NET/AWS Libfabric 1", False),
        (SLINGSHOT.replace("Provider is cxi", "provider is cxi, fabric is cxi (found 4 nics)"),
         "AWS Libfabric (cxi; 4 nics; aws-ofi-rccl 1.4.0)", "NET/AWS Libfabric 1", False),
        (SLINGSHOT.replace("AWS Libfabric", "Socket"), "Socket", "NET/Socket 1", None),
    ],
)  # fmt: skip
def test_the_network_of_a_plugin_has_its_provider(text, network, transport, gpudirect_rdma):
    columns = nccl_log.columns([parse(text)])
    assert (columns["nccl_network"], columns["nccl_transports"]) == (network, transport)
    assert columns["gpudirect_rdma"] is gpudirect_rdma


def test_algorithms_that_nccl_logs_are_counted_by_name_or_by_number():
    found = parse(TUNING)
    assert found["algorithms"] == {
        "AllReduce NVLS/SIMPLE": 2, "AllReduce TREE/LL": 1, "AllGather RING/SIMPLE": 1,
        "any TREE/LL": 1, "any 9/3": 1,
    }  # fmt: skip
    columns = nccl_log.columns([parse(ONE_NODE), found])
    assert columns["nccl_algorithms"].startswith("AllReduce NVLS/SIMPLE 2, ")


def test_columns_are_of_all_processes():
    one, two = parse(ONE_NODE), parse(TWO_NODES)
    assert nccl_log.columns([one, {}, one]) == {
        "nccl_version": "2.21.5+cuda12.4", "nccl_network": "Socket", "nccl_algorithms": None,
        "nccl_transports": "P2P/CUMEM/read 4, NVLink SHARP", "gpudirect_rdma": None,
    }  # fmt: skip
    both = nccl_log.columns([one, two])
    assert both["nccl_network"] == "IB, Socket"
    assert both["nccl_transports"].endswith("P2P/CUMEM/read 2, no NVLink SHARP")
    assert both["gpudirect_rdma"] is False  # one end does without
    assert set(nccl_log.columns([{}]).values()) == {None}


def test_each_process_reads_the_file_that_nccl_wrote_for_it(tmp_path, monkeypatch):
    monkeypatch.delenv(nccl_log.LEVEL, raising=False)
    monkeypatch.delenv(nccl_log.FILE, raising=False)
    assert nccl_log.of_process() is None
    environ = {}
    nccl_log.enable(tmp_path, environ)
    assert environ[nccl_log.LEVEL] == "INFO"
    monkeypatch.setenv(nccl_log.FILE, environ[nccl_log.FILE])
    assert nccl_log.of_process() is None  # NCCL was not used
    host = os.uname().nodename.partition(".")[0]
    (tmp_path / f"nccl.{host}.{os.getpid()}.txt").write_bytes(ONE_NODE.encode() + b"\xff\n")
    (tmp_path / f"nccl.{host}.1.txt").write_text(TWO_NODES)
    assert nccl_log.of_process() == parse(ONE_NODE)
    nccl_log.clear(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chosen", [{"NCCL_DEBUG": "WARN"}, {"NCCL_DEBUG_FILE": "/mine.%p"}])
def test_what_the_user_asks_nccl_for_stays(chosen, tmp_path):
    environ = dict(chosen)
    nccl_log.enable(tmp_path, environ)
    assert environ == chosen
