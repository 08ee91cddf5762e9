"""Findings: what the doctor says, and how bad it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec


class Severity(Enum):
    """How bad a finding is.

    ``ok``: as it should be.  ``notice``: good to know; nothing need be done now.  ``warning``: it serves, but something is
    broken or will be.  ``critical``: rows can't be inserted or read, or may be lost.
    """

    OK = "ok"
    NOTICE = "notice"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for `OK` to 3 for `CRITICAL`."""
        return _RANKS[self]


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class DoctorFinding(msgspec.Struct, frozen=True):
    """One thing that the doctor found.

    Attributes
    ----------
    severity
        How bad it is.
    code
        Names the rule, for programs: it stays the same when the words change.
    text
        What is so, and why.
    advice
        What to do; empty when there is nothing to do.
    table, replica
        Which are meant; None: the cluster.
    """

    severity: Severity
    code: str
    text: str
    advice: str = ""
    table: str | None = None
    replica: str | None = None


def worst(findings: Iterable[DoctorFinding]) -> Severity:
    """Return the severity of the worst finding; `OK` when there is none."""
    return max((finding.severity for finding in findings), key=lambda severity: severity.rank, default=Severity.OK)


def in_order(findings: Iterable[DoctorFinding]) -> tuple[DoctorFinding, ...]:
    """Return findings with the worst first, otherwise in their order."""
    return tuple(sorted(findings, key=lambda finding: -finding.severity.rank))


# --- words ------------------------------------------------------------------------------------------------------------------


def span(seconds: float) -> str:
    """Return a length of time in words.

    >>> span(0.25), span(42.4), span(600), span(8000)
    ('250 ms', '42 s', '10 min', '2.2 h')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def count(number: int, one: str, many: str = "") -> str:
    """Return a number of things in words.

    >>> count(1, "entry", "entries"), count(1200, "part")
    ('1 entry', '1,200 parts')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[object], most: int = 3) -> str:
    """Return names in words, the first few of them.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d"])
    ('a and b', 'a, b, c and 1 more')
    """
    shown = [str(name) for name in names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"
