"""A running `replitree up`, and the commands against it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.commands import Commands
from tests.waiting import wait_for

COMMAND = [sys.executable, "-m", "replitree.cli.main"]
STOP_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running `up`."""

    process: subprocess.Popen[str]
    folder: Path
    ready: dict[str, Any]
    commands: Commands

    def run(
        self, *arguments: str, status: int = 0, stdin: str | None = None, environment: Mapping[str, str] | None = None
    ) -> str:
        """Run a command against it; return standard output, or standard error when it is to fail."""
        ran = self.commands.run(*arguments, "--dir", str(self.folder), stdin=stdin, environment=environment)
        assert ran.status == status, ran.out + ran.err
        return ran.out if status == 0 else ran.err

    def run_alone(self, *arguments: str) -> str:
        """Run a command against it as people do, in a process of its own; return standard output."""
        ran = subprocess.run(
            [*COMMAND, *arguments, "--dir", str(self.folder)], capture_output=True, text=True, check=True
        )
        return str(ran.stdout)

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        return json.loads(self.run(*arguments, "--json", stdin=stdin))


def start_up(folder: Path, *arguments: str) -> Cluster:
    process = subprocess.Popen(
        [*COMMAND, "up", "--dir", str(folder), "--json", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "up ended"
    return Cluster(process, folder, json.loads(line), Commands())


def stop(cluster: Cluster) -> None:
    if cluster.process.poll() is None:
        cluster.process.send_signal(signal.SIGTERM)
    cluster.process.communicate(timeout=STOP_S_MAX)
    cluster.commands.close()


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def rows(cluster: Cluster, table: str) -> list[int | None]:
    """Return how many rows each replica has, once reads of all show the whole log, but for merges and mutations."""

    def status() -> Any:
        return cluster.json("status", table)["tables"][0]

    wait_for(lambda: all(replica["index"] == status()["log_tail"] for replica in status()["replicas"]))
    return [replica["rows"] for replica in status()["replicas"]]
