"""Runs many commands in one process, so that Python, its imports and Spark's Java are started once for all of them.

``python -m tests.cli.commands`` reads a command from each line of standard input, a JSON object with ``arguments``, ``stdin``
and ``environment``, and answers with a line: ``status``, ``out`` and ``err``.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from typing import TextIO
from unittest.mock import patch

from replitree.cli.main import main


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    status: int
    out: str
    err: str


class Commands:
    """A process that runs commands; it is started by the first."""

    @cached_property
    def _process(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.cli.commands"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None) -> Ran:
        """Run a command, with further variables in its environment."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {"arguments": arguments, "stdin": stdin or "", "environment": dict(environment or {})}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        return Ran(**json.loads(process.stdout.readline()))

    def close(self) -> None:
        """End the process, if there is one."""
        if "_process" in vars(self):
            self._process.communicate()
            assert self._process.returncode == 0


def _serve(asked: TextIO, answers: TextIO) -> None:
    for line in asked:
        command, out, err = json.loads(line), io.StringIO(), io.StringIO()
        sys.stdin = io.TextIOWrapper(io.BytesIO(command["stdin"].encode()))
        with patch.dict(os.environ, command["environment"]), redirect_stdout(out), redirect_stderr(err):
            status = main(command["arguments"])
        print(json.dumps({"status": status, "out": out.getvalue(), "err": err.getvalue()}), file=answers, flush=True)


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
