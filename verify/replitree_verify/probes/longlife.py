"""Rare branches of a long life: cleaning, losing, recovering, joining and leaving.  Names as in `catalog`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.membership.table import DROPPED_HOST, HALF_BUILT, LOST, NOT_LOST
from replitree.protocol.state.registration import is_broken

_MARKED_BY = {
    "declare_survivor": "declared good",
    "take_stand": "found itself lost",
    "drop_other": "lost its place",
}
"""What a mark is called by the stage that sets it, where that tells more than the mark does."""

_MARKS = {LOST: "marked lost", HALF_BUILT: "recovery begun", NOT_LOST: "recovered"}

_UPKEEP = ("forget_ids", "clean_ids", "forget_results", "roll")
_FORGOTTEN = {
    "/blocks/": "id forgotten",
    "/drops/": "note forgotten",
    "/results/": "result forgotten",
    "/open/": "rolled over",
}


_REFUSED = {
    "clean_entries": "cleaning",
    "recover_state": "recovery",
    "forget_ids": "forgetting ids",
    "clean_ids": "forgetting ids",
    "forget_results": "forgetting results",
    "restore_disk": "restoring",
}
"""What is called refused, by the name of the stage."""


def probes_of_long_life(stage: str, commit: fx.Commit, outcome: Any) -> Iterator[str]:
    """Return the rare branches that the outcome of a commit belongs to."""
    if isinstance(outcome, fx.Refused):
        yield from _of_refused(stage, outcome.operation)
    if stage == "declare":
        yield "declared lost" if isinstance(outcome, fx.Applied) else "declaration refused"
        if isinstance(outcome, fx.Applied) and any("/results/" in each.path for each in commit.operations):
            yield "result forgotten"
    if stage == "tell" and isinstance(outcome, fx.Applied):
        broken = any(isinstance(each, fx.Set) and is_broken(each.value) for each in commit.operations)
        yield "noted broken" if broken else "noted whole"
    if isinstance(outcome, fx.Applied) and stage == "restore_disk":
        for operation in commit.operations:
            match operation:
                case fx.Create(path) if path.endswith("/restoring"):
                    yield "restoring begun"
                case fx.Set(path, version=version) if path.endswith("/host") and version > 0:
                    yield "earlier run fenced"
                case fx.Delete(path):
                    yield "restored" if path.endswith("/restoring") else "registration taken back"
    elif isinstance(outcome, fx.Applied):
        yield from _of_applied(stage, commit)


def _of_refused(stage: str, operation: fx.Operation) -> Iterator[str]:
    if stage in _REFUSED:
        yield f"{_REFUSED[stage]} refused by {operation.path.rpartition('/')[2]}"
    elif stage == "roll":
        # Each parent has one `open` node, which rolling over deletes: when it is gone, another replica was faster.
        yield "rolled over already" if isinstance(operation, fx.Delete) else "rolling over fenced"
    elif "/open/" in operation.path:
        yield "log has gone on"


def _of_applied(stage: str, commit: fx.Commit) -> Iterator[str]:
    for each in commit.operations:
        match each:
            case fx.Delete(path) if stage in _UPKEEP:
                yield from (name for folder, name in _FORGOTTEN.items() if folder in path)
            case fx.Set(path) if stage in _UPKEEP and "/blocks/" in path:
                yield "id marked dropped"
            case fx.Set(path, value) if path.endswith("/is_lost"):
                yield _MARKED_BY.get(stage) or _MARKS[value]
            case fx.Set(path, value) if path.endswith("/host") and value == DROPPED_HOST:
                yield "drop of a replica begun"
            case fx.Set(path) if path.endswith("/log"):
                yield "log cleaned"
            case fx.Set(path) if path.rpartition("/")[2].startswith(layout.REPLICAS):
                yield "replica added"
            case fx.Delete(path) if path.endswith("/host"):
                yield "drop of a replica finished"
            case fx.Create(path) if stage == "recover_state" and "/queue/" in path:
                yield "queue taken over"
            case fx.Delete(path) if stage == "recover_state":
                yield "old queue emptied" if "/queue/" in path else "part let go"
