"""`replitree doctor`: what is wrong, why, and what to do.

The exit status is that of a check for monitoring systems: 0 when all is well (notices included), 1 when there is a warning, 2
when something is critical, and 3 when the doctor itself could not do its work: wrong options, no cluster, no token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from replitree.cli.options import Cluster, on_cluster
from replitree.cli.output import advised, counted, say

if TYPE_CHECKING:
    from replitree.client.admin.doctor_finding import DoctorFinding

EXIT_OF_SEVERITY = {"ok": 0, "notice": 0, "warning": 1, "critical": 2}
EXIT_UNKNOWN = 3
"""The doctor itself failed, so nothing is known."""

_MARKS = {"ok": "ok", "notice": "NOTICE", "warning": "WARNING", "critical": "CRITICAL"}


@on_cluster
def doctor(at: Cluster) -> None:
    """Say what is wrong and what to do; status 0: well, 1: warnings, 2: critical, 3: the doctor failed."""
    with at.connect() as connection:
        from replitree.client.admin.doctor import examine, worst

        state = connection.look_over()
    findings = examine(state)
    severity = worst(findings).value
    out = at.out
    if at.as_json:
        import msgspec

        out.json({"url": state.url, "severity": severity, "findings": msgspec.to_builtins(findings)})
    else:
        say(f"cluster {state.url}")
        for alike in grouped(findings):
            names = [finding.table for finding in alike[1:] if finding.table]
            more = f"\n{'':<8}  likewise of {counted(len(names), 'other table')}: {', '.join(names)}" if names else ""
            first = alike[0]
            say(advised(_MARKS[first.severity.value], first.text, first.advice, 8) + more)
    raise typer.Exit(EXIT_OF_SEVERITY[severity])


def grouped(findings: Sequence[DoctorFinding]) -> list[list[DoctorFinding]]:
    """Put findings together that say the same of several tables, in the order of the first of each."""
    groups: dict[tuple[object, ...], list[DoctorFinding]] = {}
    for finding in findings:
        said = (_without_table(finding, finding.text), _without_table(finding, finding.advice))
        groups.setdefault((finding.severity, finding.code, finding.replica, *said), []).append(finding)
    return list(groups.values())


def _without_table(finding: DoctorFinding, text: str) -> str:
    # Such findings differ in the table's name, the id in the name of its folder, and numbers.
    found = text if not finding.table else re.sub(rf"\b{re.escape(finding.table)}(-[0-9a-f]{{8}})?\b", "TABLE", text)
    return re.sub(r"[0-9][0-9.,]*", "#", found)
