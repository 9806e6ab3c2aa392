"""hidden_commands: what command lines have of the config's commands."""

from dlbench.machine import redaction
from dlbench.study import hidden_commands


def test_commands_are_handed_on_without_their_secrets_which_go_by_a_variable():
    arguments = ["run", "--token=abc-{model}", "--key", "def", "--max-tokens={steps}"]
    config = {
        "site": {"power_meter": "ipmitool -P abc- sdr", "power_limit_command": None},
        "trainers": {"theirs": {"command": arguments}, "plain": {"command": ["run"]}},
    }
    found = hidden_commands.hide(config)
    assert found.site == {"power_meter": "ipmitool -P (hidden-0) sdr"}
    hidden = ["run", "--token=(hidden-0){model}", "--key", "(hidden-1)", "--max-tokens={steps}"]
    assert found.trainers == {"theirs": hidden, "plain": ["run"]}
    assert redaction.restored(hidden, found.variables) == arguments
    config["trainers"].pop("theirs")
    config["site"]["power_meter"] = "watts"
    assert hidden_commands.hide(config).variables == {}
