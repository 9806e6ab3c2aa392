"""redaction: what is recorded of environments and commands, with planted secrets in all of them."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.imports import train_external
from dlbench.machine import redaction
from dlbench.study.runs import Run
from dlbench.trainer import engine

PROGRAM = Path(__file__).parents[3] / "workflow_scripts" / "start_run.py"
PLANTED = "pl4nted-s3cret"
KEYS = (
    *("ghp_", "glpat-", "hf_", "sk-proj-", "sk-ant-api03-", "AIza", "ya29.", "npm_", "pypi-"),
    *("sk_live_", "rk_test_", "nvapi-", "xoxb-"),
)
SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 3}


def recorded(environ):
    return redaction.recorded_variables(environ, engine.variables())


def test_variables_that_are_not_allowed_or_secret_by_name_are_not_recorded():
    names = ["HOME", "WANDB_API_KEY", "TF_API_TOKEN", "NCCL_PASSWORD", "HOROVOD_SECRET_KEY"]
    names += ["UCX_CREDENTIALS", "OMPI_MCA_orte_precondition_transports", "TF_VAR_database"]
    environ = dict.fromkeys([*names, "TF_CONFIG"], PLANTED) | {"OMP_NUM_THREADS": "4"}
    assert recorded(environ) == {"OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize(
    "value",
    [
        f"--xla_dump_to=gs://user:{PLANTED}@bucket/x --xla_flag",
        f"--xla_dump_to=https://{PLANTED}@host",
        f"--xla_flag --api-key={PLANTED}",
        f"--xla_flag --token {PLANTED}",
        f"password: {PLANTED}",
        f'{{"access_token": "{PLANTED}"}}',
        f"https://host/path?x=1&sig_token={PLANTED}&y=2",
        f"Authorization: Bearer {PLANTED}",
        f"clientSecret='{PLANTED} {PLANTED}'",
        f"{{'NCCL_SOCKET_IFNAME': 'token={PLANTED}'}}",
        f'msg="Authorization: Bearer {PLANTED}"',
        f"Authorization: Token {PLANTED}",
        f"sent Bearer {PLANTED}",
        f"\x1b[1mpassword\x1b[0m: {PLANTED}",
        f"\\u001b[32mapi_key\\u001b[39m=\\u001b[1m{PLANTED}",
        f"\x1b[2Ktoken\x1b[K: {PLANTED}",
        f'{{\\"password\\": \\"my {PLANTED}\\"}}',
        f'{{\\\\\\"token\\\\\\":\\\\\\"{PLANTED}\\\\\\"}}',
        f'"password": "{PLANTED}',
        *(f"{key}{'a1B2' * 13}" for key in KEYS),
        *(f"OpenAI('{key}{'a1B2' * 13}')" for key in KEYS),
        f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED}\n{PLANTED}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\\n{PLANTED}\\n-----END PRIVATE KEY-----",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PLANTED}\n",
        "AKIA" + "ABCDEFGH12345678",
        "ASIA" + "ABCDEFGH12345678",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
def test_a_secret_in_an_allowed_variable_is_hidden(value):
    (found,) = recorded({"XLA_FLAGS": value}).values()
    assert redaction.HIDDEN in found
    for secret in (PLANTED, "a1B2", "ABCDEFGH", "c2lnbmF0dXJl"):
        assert secret not in found


@pytest.mark.parametrize(
    "value",
    [
        "--xla_gpu_autotune_level=4 --xla_cpu_multi_thread_eigen=false",
        "granularity=fine,compact,1,0",
        "mlx5_0:1,mlx5_1:1",
        "tcp://10.0.0.1:3456",
    ],
)
def test_settings_are_kept_to_the_letter(value):
    assert recorded({"XLA_FLAGS": value}) == {"XLA_FLAGS": value}


def test_the_page_names_every_variable_that_is_recorded():
    page = (PROGRAM.parents[1] / "docs" / "publish.md").read_text()
    listed = page.split("not on the list:")[1].split("\n\n")[0]
    every = {*redaction.ALLOWED, *engine.variables().recorded}
    assert sorted(re.findall(r"`([^`]+)`", listed)) == sorted(every)


def test_a_command_keeps_all_words_but_secrets():
    command = ["mpirun", "-np", "2", "-x", f"API_TOKEN={PLANTED}", "python", "a b.py",
               "--steps=3", f"--password={PLANTED} with spaces", "--hf-token", PLANTED, "--verbose",
               f"https://me:{PLANTED}@host/data", "sh", "-c",
               f"export SECRET='{PLANTED}'; run"]  # fmt: skip
    found = redaction.redact_command(command)
    assert len(found) == len(command)
    assert PLANTED not in " ".join(found)
    kept = ["mpirun", "-np", "2", "-x", "python", "a b.py", "--steps=3", "--verbose", "sh"]
    assert [word for word in found if word in kept] == kept


@pytest.mark.parametrize(
    ("command", "recorded"),
    [
        ("mysql -u me -pl4nted db", "mysql -u me -p(hidden) db"),
        ("/usr/bin/mysqldump -ppassword db", "/usr/bin/mysqldump -p(hidden) db"),
        ("sshpass -p123 ssh n1", "sshpass -p(hidden) ssh n1"),
        ("gcc -pthread -pedantic -prune x", "gcc -pthread -pedantic -prune x"),
        ("curl -u me:pl4nted --proxy-user=me:pl4nted x",
         "curl -u me:(hidden) --proxy-user=me:(hidden) x"),
        ("pip install git+https://me:pl4nted@host/x", "pip install git+https://(hidden)@host/x"),
        ("curl https://me:password@", "curl https://(hidden)@"),
        ("mpirun -np 4 -ppn 2 -perhost 1 -path /x", "mpirun -np 4 -ppn 2 -perhost 1 -path /x"),
        ("qsub -pe smp 4 -p 0", "qsub -pe smp 4 -p 0"),
        ("docker run -u 1000:1000 -p8080:80 -p22", "docker run -u 1000:1000 -p8080:80 -p22"),
    ],
)  # fmt: skip
def test_passwords_that_stand_behind_a_letter_or_a_name_are_hidden(command, recorded):
    assert redaction.redact(command) == recorded
    assert redaction.redact_command(command.split()) == recorded.split()


def test_names_that_say_so_are_those_of_secrets_and_others_that_only_look_so_are_not():
    for name in ("creds", "DB_CREDS", "aws-creds", "dbCreds", "creds.json", "license_key"):
        assert redaction.is_secret(name)
        assert redaction.redact(f"{name}={PLANTED}") == f"{name}=(hidden)"
    for name in ("license", "LICENSE_FILE", "licence", "sacreds", "increds_total"):
        assert not redaction.is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        "--max-tokens=4096 --tokens-per-batch 8192",
        "tokens_per_second: 12345.6, tokens=1.2e9}",
        '{"num_tokens": 512, "tokens": "3.5B"}',
        "--tokens={batch_per_device} --key={model}",
        "nvidia-smi -i GPU-1 -pl 300",
        "train --use-auth --steps 3",
        "sk-learn-compatible-estimators global-batch-size-per-device bearer of-good-news",
        "-----BEGIN CERTIFICATE-----",
        'msg="loss: 5, lr: 0.1"',
    ],
)
def test_numbers_of_tokens_fields_of_a_run_and_other_flags_are_no_secrets(text):
    assert redaction.redact(text) == text
    assert redaction.redact_command(text.split()) == text.split()


@pytest.mark.parametrize(
    "text",
    [
        f"['--token', '{PLANTED}', '--steps', '3']",
        f'["--token", "{PLANTED}"]',
        f"[prog, --token, {PLANTED}]",
        f"- --token\n  - {PLANTED}\n  - --steps",
        f'- "--api-key"\n- "{PLANTED} x"',
        f"ipmitool -I lanplus -H node -U admin -P {PLANTED} dcmi power reading",
        f'power_meter: "curl https://pdu -u me:{PLANTED}"',
    ],
)
def test_secrets_in_lists_and_in_meters_of_power_are_hidden(text):
    found = redaction.redact(text)
    assert PLANTED not in found and redaction.HIDDEN in found
    assert found.count('"') == text.count('"') or '"' + PLANTED in text
    command = ["ipmitool", "-U", "admin", "-P", PLANTED, "dcmi"]
    assert redaction.redact_command(command)[4] == redaction.HIDDEN
    assert redaction.redact("ipmi-dcmi -p 623 -h node") == "ipmi-dcmi -p 623 -h node"


@given(st.lists(st.sampled_from([
    "--token", f"--token={PLANTED}", PLANTED, "-u", f"me:{PLANTED}", f"https://me:{PLANTED}@host",
    f"-p{PLANTED}", f"token=https://a:{PLANTED}@b", "{{x}}", "{model}",
    f"--key=a{{model}}{PLANTED}",
    f"--key='{PLANTED} {PLANTED}'", "--steps=3", f"--secret={{{{{PLANTED}}}}}", "ipmitool", "-P",
    f'{{{{"token": "{PLANTED}"}}}}', f'[{{{{"a_key": "{PLANTED}"}}}}, x]', f"key='a'b{PLANTED}",
])))  # fmt: skip
def test_a_command_whose_secrets_were_taken_out_has_them_again(command):
    taken = redaction.Secrets()
    words = taken.take_out_of_template(command)
    filled = [word.format(model="vgg") for word in words]
    assert redaction.restored(filled, taken.variables) == [w.format(model="vgg") for w in command]
    text = " ".join(command)
    assert redaction.restored([redaction.Secrets().take_out("plain")], {}) == ["plain"]
    again = redaction.Secrets()
    assert redaction.restored([again.take_out(text)], again.variables) == [text]


@given(st.lists(st.lists(st.sampled_from([
    '"token": ', "key=", "--key ", "-p", "-u a:", "ipmi -P ", "x://", "@", f'"{PLANTED}"', PLANTED,
    "ghp_" + "a" * 20, redaction.HIDDEN, "}}", "a", " ", "'", ",", "\n- ", '\\"', "Bearer ", "\x1b",
    "[", "0m", "-----BEGIN PRIVATE KEY-----", "-----END",
]), min_size=2).map("".join)))  # fmt: skip
@example(['"token": "token": ', "ipmi -P x://", "ipmi -P key="])
def test_a_redacted_text_stays_as_it_is(command):
    text = redaction.redact(" ".join(command))
    assert redaction.redact(text) == text
    hidden = redaction.redact_command(command)
    assert redaction.redact_command(hidden) == hidden


def test_secrets_that_did_not_come_along_are_missed():
    with pytest.raises(Error, match="APPTAINER_CLEANENV"):
        redaction.restored(["--token=(hidden-0)"], {})


@given(st.lists(st.text()))
def test_any_words_are_words_afterwards(command):
    assert len(redaction.redact_command(command)) == len(command)


def test_a_long_value_does_not_take_long():
    parts = ["a", "a=", "--a ", "a:/", "token ", "x://", "eyJ", "eyJ-", "a. ", "--a,", "--a\n"]
    parts += ['key: "', "key: \\'", "-----BEGIN PRIVATE KEY-----", "bearer ", "sk-", "\x1b["]
    for part in [*parts, "\n- ", "ipmi ", "ipmi -P", "-u a", "mysql "]:
        began = time.process_time()
        redaction.redact(part * 20_000)
        assert time.process_time() - began < 2, part


def test_no_planted_secret_of_a_job_gets_into_log_or_record(tmp_path):
    """As in a job script: in the environment, and in arguments of the command."""
    secrets = ("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "NCCL_TOKEN")
    environment = os.environ | dict.fromkeys(secrets, PLANTED) | {
        "XLA_FLAGS": f"--xla_x=1 --token={PLANTED}", "NCCL_DEBUG": "INFO",
        "UCX_URL": f"https://me:{PLANTED}@host",
    }  # fmt: skip
    command = [
        sys.executable, PROGRAM, "--log", tmp_path / "train.jsonl", "--messages", tmp_path / "m",
        f"--spec={json.dumps(SPEC)}", "--", sys.executable, "-c", "print(1)",
        "--api-token", PLANTED, f"--password={PLANTED}",
    ]  # fmt: skip
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert PLANTED not in path.read_text(), path
    words = json.loads((tmp_path / "run.json").read_text())["provenance"]["command"]
    assert words[-3:] == ["--api-token", "(hidden)", "--password=(hidden)"]


def test_what_another_trainer_is_told_in_secret_stays_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", f"--a=1 --secret_key={PLANTED}")
    monkeypatch.setenv("HF_TOKEN", PLANTED)
    run = Run(**SPEC, trainer="theirs")
    log = tmp_path / "train.jsonl"
    train_external.train(run, ["true", "--token", PLANTED], "auto", log)
    (machine,) = [json.loads(line) for line in log.read_text().splitlines() if '"machine"' in line]
    assert machine["variables"]["TF_XLA_FLAGS"] == "--a=1 --secret_key=(hidden)"
    assert PLANTED not in log.read_text()
