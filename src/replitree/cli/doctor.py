"""`replitree doctor`: what is wrong, why, and what to do.

The exit status is that of a check for monitoring systems: 0 when all is well (notices included), 1 when there is a warning, 2
when something is critical, and 3 when the doctor itself could not do its work: wrong options, no cluster, no token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from replitree.cli.options import Cluster, on_cluster

if TYPE_CHECKING:
    from replitree.client.doctor_finding import Finding

EXIT_OF_SEVERITY = {"ok": 0, "notice": 0, "warning": 1, "critical": 2}
EXIT_UNKNOWN = 3
"""The doctor itself failed, so nothing is known."""

_MARKS = {"ok": "ok", "notice": "NOTICE", "warning": "WARNING", "critical": "CRITICAL"}


@on_cluster
def doctor(at: Cluster) -> None:
    """Say what is wrong and what to do; status 0: well, 1: warnings, 2: critical, 3: the doctor failed."""
    with at.connect() as connection:
        from replitree.client.doctor import examine, worst

        state = connection.look_over()
    findings = examine(state)
    severity = worst(findings).value
    out = at.out
    if at.as_json:
        import msgspec

        out.json({"url": state.url, "severity": severity, "findings": msgspec.to_builtins(findings)})
    else:
        print(f"cluster {state.url}")
        for finding in findings:
            print(_text(finding))
    raise typer.Exit(EXIT_OF_SEVERITY[severity])


def _text(finding: Finding) -> str:
    """Return a finding as people read it: one line, and one more with what to do.

    >>> from replitree.client.doctor_finding import Finding, Severity
    >>> print(_text(Finding(Severity.NOTICE, "lag", "r2 lags 3 entries behind in t", "wait")))
    NOTICE    r2 lags 3 entries behind in t
              -> wait
    """
    lines = [f"{_MARKS[finding.severity.value]:<8}  {' '.join(finding.text.split())}"]
    if finding.advice:
        lines.append(f"{'':<8}  -> {' '.join(finding.advice.split())}")
    return "\n".join(lines)
