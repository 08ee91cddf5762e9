"""Leave pandas out of a process that runs only our code.

pyarrow imports pandas, where it is installed, for the first value that it converts and with `pyarrow.dataset`: 1.4 s of CPU and
45 MB for each replica, of which nothing is used.

Guarantees: the rest of the process sees an environment without pandas, which everything here runs in as well: it is an extra.

Absent on purpose: the library.  A program that uses replitree may want pandas in the same process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class WithoutPandas:
    """A finder that says of pandas that it is not installed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Leave every other module to the finders behind this one.

        Raises
        ------
        ModuleNotFoundError
            It is pandas.
        """
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("this process of replitree uses no pandas", name=name)
        return None


def leave_out_pandas() -> None:
    """Let this process find no pandas.  Call it before pyarrow is imported, in a process that runs no code of users."""
    sys.meta_path.insert(0, WithoutPandas)


__all__ = ["leave_out_pandas"]
