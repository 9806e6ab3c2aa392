"""node_use: which processes use the cores of a node, by the kernel's files."""

import pytest

from dlbench.starting import neighbours
from support.machines.kernel_files import Kernel

US = 10  # a process


@pytest.fixture
def kernel(tmp_path):
    made = Kernel(tmp_path)
    made.process(1, 0)
    made.process(US, 1)
    return made


def test_where_numbers_are_not_told_all_processes_are_listed(kernel):
    own = neighbours.ProcessTree(kernel.root / "proc", US, {})
    kernel.process(20, US, own_s=1.0)
    kernel.process(30, 1, own_s=7.0)  # of somebody else: without a mark none is ours by it
    kernel.write("proc/loadavg", "0 0 0 0/0 0\n")
    assert own.sample()[0] == pytest.approx(1)


def test_the_outermost_snakemake_is_at_the_top(kernel):
    kernel.process(20, US)
    kernel.process(21, 20)
    kernel.process(22, 21)
    kernel.write("proc/10/cmdline", "/x/python3.12\0/x/bin/snakemake\0-n\0")
    kernel.write("proc/20/cmdline", "sh\0-c\0snakemake\0")
    kernel.write("proc/21/cmdline", "python\0-m\0snakemake\0")
    proc = kernel.root / "proc"
    assert neighbours.workflow_of(proc, 22) == US
    assert neighbours.workflow_of(proc, US) == US
    kernel.write("proc/10/cmdline", "vi\0snakemake\0")
    assert neighbours.workflow_of(proc, 22) == 21
    assert neighbours.workflow_of(proc, 1) == 1
