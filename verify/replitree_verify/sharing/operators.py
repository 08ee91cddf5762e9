"""Operators: they run `replitree fsck --repair`."""

from __future__ import annotations

from replitree.protocol.rescue import fsck_repair
from replitree_verify.sharing.checking import GRACE_MS, OthersDone, Told
from replitree_verify.sharing.process import Running
from replitree_verify.sharing.world import TABLE


def check_afterwards() -> Running[None]:
    """Run fsck when the others have done their tasks; what they asked for may still be on its way."""
    yield OthersDone()
    yield from check()


def check() -> Running[None]:
    """Run fsck with repair."""
    report = yield from fsck_repair.fsck(TABLE, GRACE_MS, with_repair=True)
    if isinstance(report, fsck_repair.Report):
        yield Told(tuple(finding for finding, _ in report.findings))


__all__ = ["check", "check_afterwards"]
