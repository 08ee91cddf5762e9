"""The command starts quickly, shows help for everything, and imports the heavy things only when it needs them."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.cli.conftest import Run

COMMANDS = [
    (),
    ("up",),
    ("server",),
    ("blobd",),
    ("table",),
    ("table", "create"),
    ("table", "list"),
    ("table", "show"),
    ("table", "drop"),
    ("insert",),
    ("sql",),
    ("status",),
    ("verify",),
    ("verify", "list"),
    ("verify", "explore"),
    ("verify", "simulate"),
    ("bench",),
    ("bench", "inserts"),
    ("bench", "bulk"),
    ("bench", "read"),
    ("bench", "steady"),
    ("bench", "verify"),
    ("demo",),
    ("version",),
]
HEAVY = ("pyarrow", "pyspark", "kazoo", "numpy", "aiohttp", "sqlglot", "msgspec")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command, "--help")
    assert ran.status == 0
    assert "Usage: replitree" in ran.out
    assert ran.err == ""


def test_commands_that_print_results_take_json(run: Run) -> None:
    for command in COMMANDS:
        if command and command not in {("table",), ("verify",), ("bench",), ("server",), ("blobd",)}:
            assert "--json" in run(*command, "--help").out, command


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from replitree.cli.main import main; main(['--help']); "
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("command", "loaded"), [("version", "version"), ("sql", "tables.sql"), ("tablet", "tablets.tablet")]
)
def test_a_command_imports_no_other_command(command: str, loaded: str) -> None:
    code = (
        f"import sys; from replitree.cli.main import main; main([{command!r}, '--help']); "
        "print(*(m for m in sys.modules if m.startswith('replitree.cli.')), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {module.removeprefix("replitree.cli.") for module in ran.stderr.split()}
    assert loaded in found
    assert not found & {"cluster.up", "cluster.status", "tables.table", "tables.insert", "demo", "version"} - {loaded}


def test_a_command_that_is_misspelt_is_named(run: Run) -> None:
    error = run("docter", "--json").error
    assert "No such command 'docter'. Did you mean 'doctor'?" in error["message"]


def test_help_is_there_within_half_a_second() -> None:
    def seconds() -> float:
        """CPU seconds: on an idle machine the same as by the clock, on a busy one the same as always."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "replitree.cli.main", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


def test_version_is_json_when_asked(run: Run) -> None:
    ran = run("version", "--json")
    assert ran.status == 0
    assert {"replitree", "pyspark", "pyarrow", "python"} <= set(ran.json)


@pytest.mark.parametrize("command", [(), ("table",), ("verify",), ("bench",)], ids=str)
def test_a_group_without_a_command_shows_its_help(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command)
    assert ran.status == 2
    assert ran.out == ""
    assert "Commands:" in ran.err
    assert run(*command, "--json").error["error"] == "UsageError"


def test_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m replitree.cli.main verify list --json | head -c 1"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ran.stdout == "["
    assert ran.stderr == ""
