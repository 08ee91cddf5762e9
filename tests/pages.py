"""Runs the code blocks of a page of the documentation, in their order, as a reader would.

`python` blocks share the names of their page.  Of `sh` blocks `replitree` commands run in this process, and other lines in
a shell; what starts something that stays, or installs, is only understood: the test has a cluster, and the packages.
Statements of `sql` blocks go through `replitree sql`.  `toml` blocks are configurations of servers.  `console` blocks show
commands for other machines: `tests/cli/test_documented.py` parses them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replitree.cli.main import main
from replitree.decoding import converted
from replitree.replica.kit.config import ServerConfig
from tests.project.source import ROOT

BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
STAYS = ("replitree up", "replitree server")
"""Commands that serve until they are stopped."""

ENVIRONMENT = ("python3 -m venv ", ". .venv/bin/activate")
"""Commands that make the environment of the reader; the test has one."""

SHOWN = frozenset({"", "console", "text", "yaml"})
"""Languages of blocks that nothing runs."""


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of the blocks of a page of `docs/` that run."""
    found = BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if language not in SHOWN]


class PageRunner:
    """Runs one page in the present folder.

    Parameters
    ----------
    page
        Its name, for tracebacks.
    replaced
        Texts of its programs that are others in this run.
    """

    def __init__(self, page: str, replaced: Mapping[str, str] | None = None) -> None:
        self._page, self._replaced = page, dict(replaced or {})
        self.names: dict[str, Any] = {}

    def run(self) -> int:
        """Run all blocks; return how many there are."""
        found = blocks(self._page)
        for language, text in found:
            getattr(self, f"_{language}")(text)
        return len(found)

    def _python(self, text: str) -> None:
        for each, other in self._replaced.items():
            text = text.replace(each, other)
        exec(compile(text, self._page, "exec"), self.names)

    def _sql(self, text: str) -> None:
        for statement in filter(None, map(str.strip, text.split(";"))):
            self._command(["sql", "--engine", "duckdb", statement])

    def _toml(self, text: str) -> None:
        converted(tomllib.loads(text), ServerConfig)

    def _sh(self, text: str) -> None:
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith(STAYS + ENVIRONMENT):
                continue
            if line.startswith("pip install "):
                extras = set(re.findall(r"[\w-]+", line.partition("[")[2].partition("]")[0]))
                project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
                assert extras <= set(project["optional-dependencies"]), line
            elif line.startswith("replitree "):
                self._command(shlex.split(line)[1:])
            else:
                own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
                subprocess.run(["bash", "-euc", line], check=True, env=os.environ | {"PATH": own})

    def _command(self, arguments: list[str]) -> None:
        status = main(arguments)
        # The doctor judges the whole cluster, which has tables of other pages: a notice or a warning is an answer.
        assert status == 0 or (arguments[0] == "doctor" and status in (1, 2)), (self._page, arguments, status)
