"""Processes that stand for a tablet, and clients that talk to whichever leads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from replitree.errors import NotLeader, ReplitreeError
from tests.project.source import ROOT

PATIENCE_S = 5.0


class NoAnswer(ReplitreeError):
    """Nobody answered, or not in time: what was asked may have been done."""


class Candidate:
    """A process that stands for a tablet, and is started again after it was killed.

    Parameters
    ----------
    machine
        Which.
    folder
        Of the group.
    port, peers
        Its own port, and those of the others.
    log
        Where its output goes.
    options, environment
        More of the command line, and of the environment.
    """

    def __init__(
        self,
        machine: str,
        folder: Path,
        port: int,
        peers: Sequence[int],
        log: Path,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        code = "import sys; from replitree.cli.main import main; sys.exit(main())"
        self._command = [sys.executable, "-c", code, "tablet", "serve", machine, str(folder)]
        self._command += ["--port", str(port), *options]
        self._command += [word for peer in peers for word in ("--peer", f"http://127.0.0.1:{peer}")]
        self._log = log
        self._environment = os.environ | dict(environment or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.lease_s = 0.0

    def start(self, lease_s: float = 0.0) -> None:
        """Start it, with a lease of so many seconds."""
        self.lease_s = lease_s
        command = [*self._command, *(["--lease", str(lease_s)] if lease_s else [])]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)

    def stop(self) -> None:
        """Let it stand still: it does nothing until `go_on`, and knows nothing of the time between.

        A thread that is in a system call ends that before it stands, and may have got a lock in it: all of them are waited for.
        """
        self._send(signal.SIGSTOP)
        assert self.process is not None
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def go_on(self) -> None:
        """Let it go on where it stood."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def status(self) -> Mapping[str, Any]:
        """Return what it says of itself; nothing when it does not answer."""
        try:
            return ask(self.url, "GET", "/status", patience_s=1.0)[1]
        except ReplitreeError:
            return {}


def ask(
    url: str, method: str, path: str, body: object = None, patience_s: float = PATIENCE_S
) -> tuple[int, Mapping[str, Any]]:
    """Ask one candidate.

    Raises
    ------
    NotLeader
        Certainly nothing was done.
    NoAnswer
        That is not known.
    """
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=patience_s)
    try:
        try:
            connection.connect()
        except OSError as error:
            raise NotLeader(f"{url}: {error}") from error
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        found = json.loads(response.read())
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswer(f"{url}: {error}") from error
    finally:
        connection.close()
    if response.status == 503:
        raise NotLeader(found["message"])
    if response.status not in (200, 409):
        raise NoAnswer(f"{url}: {response.status}: {found.get('message')}")
    return response.status, found


def leader_of(candidates: Sequence[Candidate], deadline_s: float = 60.0) -> Candidate:
    """Wait until one of them leads."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        for each in candidates:
            if each.status().get("role") == "leader":
                return each
    raise AssertionError(f"nobody led within {deadline_s:g} s: {[each.status() for each in candidates]}")
