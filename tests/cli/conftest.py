"""What the tests of the command line share: running it in this process, and rows that lie around."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import replitree.client
from replitree.cli.main import main
from replitree.client.connection import Connection
from tests.replica.inprocess import InProcessCluster


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """Standard error as the one JSON document that it must be."""
        return json.loads(self.err)


Run = Callable[..., Ran]


@contextmanager
def connected(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Connect to a cluster in this process, as the commands that run meanwhile do."""
    monkeypatch.setattr(replitree.client, "connect", lambda _: cluster.connect())
    with cluster.connect() as made:
        yield made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Run a command in an empty folder, with an environment that names no cluster."""
    for variable in ("REPLITREE_URL", "REPLITREE_DIR", "REPLITREE_TOKEN", "REPLITREE_TOKEN_FILE", "REPLITREE_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        status = main(arguments)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    root = logging.getLogger()
    before = root.handlers[:], root.level  # a command sets up the logs of its process, and this one runs other tests
    yield call
    root.handlers[:], root.level = before
    os.environ.pop("REPLITREE_DEBUG", None)
