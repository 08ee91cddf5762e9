"""Mutations of restoring a table from the parts on a disk."""

# ruff: noqa: SLF001 - a mutation reaches into what it breaks

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.membership.table import NOT_LOST
from replitree.protocol.rescue import restore as procedures
from replitree_verify.mutations.changes import Asked
from replitree_verify.mutations.changes import Change as EffectChange
from replitree_verify.mutations.stages import leaving_out
from replitree_verify.mutations.table import Patches
from replitree_verify.process import restoring


def _of_host(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return isinstance(operation, fx.Check) and operation.path.endswith("/host")


def _of_mark(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return isinstance(operation, fx.Check | fx.Delete) and operation.path.endswith("/restoring")


def _of_parent(operation: fx.Operation, commit: fx.Commit) -> bool:
    again = sum(each.path == operation.path for each in commit.operations) > 1
    return isinstance(operation, fx.Create) and again and operation is not _first(operation.path, commit)


def _first(path: str, commit: fx.Commit) -> fx.Operation:
    return next(each for each in commit.operations if each.path == path)


def _never_again(replica: Replica, metadata: bytes, there: fx.Node, mark: fx.Node | None) -> str:
    """Refuse whatever is there already."""
    del metadata, there, mark
    return f"table {replica.table.name} is there"


def _own_or_not(replica: Replica, metadata: bytes, there: fx.Node, mark: fx.Node | None) -> None:
    """Go on with what another replica has begun."""
    del replica, metadata, there, mark


def _whole_or_not(parts: Iterable[tuple[str, str]]) -> dict[Part, str]:
    """Take every part for what its manifest says."""
    return {parse_part(name): content.removesuffix(restoring.SPOILT) for name, content in parts}


def _never_detached(*_: Any) -> frozenset[Part]:
    """Take what is among the parts for a part of the table, although a detach has kept it aside."""
    return frozenset()


def _first_again(parts: Iterable[Part]) -> int:
    """Let the log begin anew."""
    del parts
    return 0


def _never_finished(*_: Any) -> Generator[Any, Any, None]:
    """Do not look what an earlier run has done."""
    yield from ()


def _finished_with_anything(
    replica: Replica, lost: fx.Node | None, parts: Mapping[Part, str]
) -> Generator[Any, Any, Any]:
    """Take every table that was restored for one with these parts."""
    names: tuple[str, ...] = (yield fx.Children(layout.parts(replica))) or ()
    values = (yield fx.GetMany(tuple(layout.part(replica, name) for name in names))).nodes if names else ()
    own = {parse_part(name): node.value.decode() for name, node in zip(names, values, strict=True)}
    return (yield from _finished(replica, lost, own)) if parts else None


def _keeping(run: Any, parts: Mapping[Part, str], shared: Any) -> Generator[Any, Any, bool | None]:
    """Register what is not registered, and let be what is."""
    del shared
    own: tuple[str, ...] = (yield fx.Children(layout.parts(run.replica))) or ()
    left = {part: content for part, content in sorted(parts.items()) if part.name not in own}
    for part, content in left.items():
        yield fx.Commit(*run.proof, fx.Create(layout.part(run.replica, part.name), content.encode()))
    return True if left else None


def taken_over_by_itself(*_: Any) -> EffectChange:
    """Take an own commit that comes late for that of another process."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(outcome, fx.Refused) and "/parts/" in outcome.operation.path:
            return fx.Refused(effect.operations[0], fx.Reason.BAD_VERSION)
        return outcome

    return change


unfenced = leaving_out(_of_host)
unmarked = leaving_out(_of_mark)
in_its_first_parent = leaving_out(_of_parent)

_finished = procedures._finished

GOOD_AT_ONCE: Patches = {(procedures, "LOST"): NOT_LOST}
NEVER_AGAIN: Patches = {(procedures, "_problem"): _never_again}
OWN_OR_NOT: Patches = {(procedures, "_problem"): _own_or_not}
WHOLE_OR_NOT: Patches = {(restoring, "whole_parts"): _whole_or_not}
FIRST_AGAIN: Patches = {(procedures, "first_parent"): _first_again}
NEVER_FINISHED: Patches = {(procedures, "_finished"): _never_finished}
FINISHED_WITH_ANYTHING: Patches = {(procedures, "_finished"): _finished_with_anything}
KEEPING: Patches = {(procedures, "_register"): _keeping}
NEVER_DETACHED: Patches = {(restoring, "detached_parts"): _never_detached}
