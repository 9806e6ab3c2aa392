"""Tables and figures of another study that are about to be replaced are named."""

from dlbench.plan import replaced_tables

TABLE = b"run_id,study,timing_source,source\na,log,megatron,x.log\nb,first,patterns,\n"


def test_tables_of_another_study_are_said_to_be_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not list(replaced_tables.lines("first"))  # there are none
    replaced_tables.RUNS.parent.mkdir(parents=True)
    replaced_tables.RUNS.write_bytes(TABLE)
    (line,) = replaced_tables.lines("second")
    assert "are those of the study first; those of second take their place" in line
    assert "dlbench partial --output FOLDER" in line
    assert not list(replaced_tables.lines("first"))
    for names_no_study in (b"", b"run_id\na\n", b"\xff\xfe\0", b"study\n"):
        replaced_tables.RUNS.write_bytes(names_no_study)
        assert not list(replaced_tables.lines("second"))
