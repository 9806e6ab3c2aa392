"""kinds: modules and files of patterns are found by their names."""

import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.imports import import_logs, kinds
from dlbench.study import log_patterns
from support.logs.trainer_samples import nanogpt

OWN = """about: A loop of ours
recognise: ["took "]
step: 'step (?P<step>\\d+) took (?P<step_time_ms>\\S+) ms'
"""
LOG = "".join(f"step {step} took 125 ms\n" for step in range(1, 11))


def test_kinds_are_modules_and_files_of_patterns_without_a_name_twice():
    assert not set(plugins.names("importers")) & set(log_patterns.names())
    assert {"mxnet", "nanogpt"} <= set(kinds.names())
    assert kinds.summary("nanogpt").startswith("nanoGPT's train.py: `iter 10: loss")


@pytest.mark.parametrize("name", log_patterns.names())
def test_each_file_of_patterns_can_be_read_by_the_engine_and_cites_its_source(name):
    importer = kinds.of_user(str(log_patterns.path(name)))  # the schema is checked here alone
    log_patterns.check_by_re2(importer.patterns, name)
    assert "Source: " in importer.about and importer.marks


def test_a_file_of_the_users_patterns_reads_finished_logs_beside_those_of_other_kinds(tmp_path):
    (tmp_path / "ours.yaml").write_text(OWN)
    for name, text in (("a", LOG), ("b", nanogpt(0.125, 10))):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "log").write_text(text)
    kind, fields = str(tmp_path / "ours.yaml"), {"global_batch": 64}
    made = import_logs.import_paths([tmp_path / "logs"], fields, kind=kind)
    assert [row["timing_source"] for row in made.rows] == ["ours", "nanogpt"]
    assert [row["images_per_second"] for row in made.rows] == [512, 512]
    assert made.rows[0]["burn_in_steps"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("step: x\n", "expected about, recognise"),
        (OWN + "stop: x\n", "unknown key 'stop'"),
        (OWN.replace("_ms", ""), "there is no number 'step_time'"),
        (OWN.replace("took (", "(?<=k) ("), "is not for RE2"),
        (OWN + OWN, "line 4"),
    ],
)
def test_a_file_with_mistakes_is_refused_with_its_name(tmp_path, content, message):
    (tmp_path / "ours.yaml").write_text(content)
    with pytest.raises(Error) as error:
        kinds.of_user(str(tmp_path / "ours.yaml"))
    assert message in str(error.value) and "ours.yaml" in str(error.value)
