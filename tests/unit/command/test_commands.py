"""The list of commands, and the files that have them."""

from pathlib import Path

from dlbench.command import commands

FOLDER = Path(commands.__file__).parent


def test_every_file_of_a_command_is_listed_and_every_command_has_its_file():
    files = {
        f"dlbench.command.{path.parent.name}.{path.stem}"
        for path in FOLDER.glob("*/*.py")
        if path.stem != "__init__"
    }
    assert {commands.module_name(name) for name in commands.names()} == files
    assert set(commands.GROUPS) == set(commands.TITLES)
