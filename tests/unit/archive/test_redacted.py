"""write_archive: secrets in its texts are hidden; some stay, since digests name them."""

import json

from dlbench.archive import write_archive
from dlbench.machine import redaction

SECRET = "pl4nted-s3cret"


def test_the_secrets_of_settings_are_known_also_those_that_a_start_hands_on(monkeypatch):
    settings = {
        "site": {"power_meter": f"ipmitool -P '{SECRET}' sdr"},
        "trainers": {"x": {"command": ["a", "--token", "short", "--key=longer-than-all-others"]}},
    }
    assert write_archive.secrets_of(settings) == ["longer-than-all-others", SECRET]
    monkeypatch.setenv(redaction.VARIABLE, json.dumps(["from-the-start"]))
    known = write_archive.secrets_of(redaction.redact_settings(settings))
    assert known == ["from-the-start"]


def test_secrets_are_hidden_in_texts_only_and_counted(tmp_path):
    texts = {
        "results/runs/a/output/printed.log": f"hello {SECRET}\ntoken=abc {SECRET}\n",
        "results/runs/a/output/plain.csv": "step,tokens_per_second\n1,5\n",
        "results/logs/train/a.log": "Authorization: Bearer abc\n" + "x" * 3_000_000 + "\nkey: b\n",
        "results/batches/x/tries/1/output/printed.log": "https://me:pw@host/\n",
        "as_given/config.yaml": "- --token\n- abc\n",
        "results/runs/a/train.jsonl": '{"token": "abc"}\n',
    }
    files = {}
    for number, (name, text) in enumerate(texts.items()):
        files[name] = tmp_path / str(number)
        files[name].write_text(text)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\0token=abc")
    latin = tmp_path / "latin"
    latin.write_bytes(b"\xe4 password=abc\r\nimages/sec: 1\r\n")
    files |= {"results/runs/a/output/events": binary, "results/runs/a/output/latin.log": latin}
    folder = tmp_path / "copies"
    folder.mkdir()
    chosen, counts, left = write_archive.redact_files(files, [SECRET], folder)
    assert counts == {
        "results/runs/a/output/printed.log": 3,
        "results/logs/train/a.log": 2,
        "results/batches/x/tries/1/output/printed.log": 1,
        "as_given/config.yaml": 1,
        "results/runs/a/output/latin.log": 1,
    }
    assert {name for name in files if chosen[name] != files[name]} == counts.keys()
    hidden = chosen["results/runs/a/output/printed.log"].read_text()
    assert hidden == "hello (hidden)\ntoken=(hidden) (hidden)\n"
    latin = chosen["results/runs/a/output/latin.log"].read_bytes()
    assert latin == b"\xe4 password=(hidden)\r\nimages/sec: 1\r\n"
    assert left == []
    again, counts, _ = write_archive.redact_files(chosen, [SECRET], folder / "..")
    assert (again, counts) == (chosen, {})


def test_secrets_in_what_digests_name_stay_and_are_named(tmp_path):
    script = tmp_path / "theirs.py"
    script.write_text(f"get('https://me:{SECRET}@host')\n")
    files = {
        "trainers/theirs/theirs.py": script,
        "own/mine.py": b"x = 'hf_" + b"a1B2" * 6 + b"'",
        "results/report.html": SECRET.encode(),
        "own/plain.py": b"token = next(tokens)",
        "results/runs/a/train.jsonl": b"{}",
    }
    chosen, counts, left = write_archive.redact_files(files, [SECRET], tmp_path)
    assert (chosen, counts) == (files, {})
    assert left == ["trainers/theirs/theirs.py", "own/mine.py", "results/report.html"]
    lines = write_archive.ArchiveSummary(1, 4, counts, left).describe_secrets()
    assert lines[0].startswith("  a secret stays in trainers/theirs/theirs.py, since results")
    written = write_archive.ArchiveSummary(1, 40, {f"{n}.log": 1 for n in range(13)}, ["x"] * 12)
    lines = written.describe_secrets()
    assert lines[9:11] == ["  1 secret hidden in 9.log",
                           "  and in 3 more: archive.json has them all"]  # fmt: skip
    assert lines[-2] == "  and in 2 more" and "Only secrets whose name" in lines[-1]
