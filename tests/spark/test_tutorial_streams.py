"""The tutorial on streams, as a reader follows it: its programs and commands, with the kill in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import replitree
from replitree.client.table import Table
from tests.cli.started import start_up, stop
from tests.project.source import ROOT
from tests.waiting import wait_for

PAGE = (ROOT / "docs/tutorial-streams.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"Save \w+ as `(\w+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PAID = [order for order in range(900) if order % 3 != 2]
QUERY_S_MAX = 400.0
"""How long a query may take until it has done what is waited for: it starts Java."""


class Reader:
    """Runs the commands of the page in the folder of the cluster, and kills what they leave behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        own = str(Path(sys.executable).parent)
        self._environment = os.environ | {"PATH": f"{own}{os.pathsep}{os.environ['PATH']}"}
        self._shells: list[subprocess.Popen[bytes]] = []

    def run(self, commands: str) -> None:
        """Run commands of the page; what they leave in the background goes on."""
        shell = subprocess.Popen(
            ["bash", "-euc", commands], cwd=self._folder, env=self._environment, start_new_session=True
        )
        self._shells.append(shell)
        assert shell.wait(QUERY_S_MAX) == 0, commands

    def end(self) -> None:
        """Kill what is left in the background."""
        for shell in self._shells:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    cluster = start_up(tmp_path / "replitree-data")
    yield tmp_path
    stop(cluster)


@pytest.mark.system
@pytest.mark.nightly
def test_each_order_is_there_once_after_the_kill(folder: Path) -> None:
    programs = dict(PROGRAM.findall(PAGE))
    assert sorted(programs) == ["orders.py", "pipeline.py"]
    for name, text in programs.items():
        (folder / name).write_text(text)
    create, start, count, kill, start_again = COMMANDS.findall(PAGE)
    reader = Reader(folder)
    try:
        reader.run(create)
        reader.run(start)
        with replitree.connect(str(folder / "replitree-data")) as cluster:
            paid = cluster.table("paid")
            wait_for(lambda: ids(paid), "some orders are paid", QUERY_S_MAX)
            reader.run(count)
            reader.run(kill)
            reader.run(start_again)
            wait_for(lambda: len(ids(paid)) >= len(PAID), "all are", QUERY_S_MAX)
            assert ids(paid) == PAID
    finally:
        reader.end()


def ids(table: Table) -> list[int]:
    """Return the orders in a table, ascending."""
    found: list[int] = table.to_arrow(level="linearizable")["id"].to_pylist()
    return sorted(found)
