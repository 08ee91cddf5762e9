"""Mutations of restoring a table from the parts on a disk."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from replitree.protocol import layout
from replitree.protocol import restore as procedures
from replitree.protocol.effects import Check, Children, Commit, Create, Delete, Node, Operation, Reason, Refused
from replitree.protocol.layout import Replica
from replitree.protocol.parts import Part, parse_part
from replitree.protocol.table import NOT_LOST
from replitree.verify import restoring
from replitree.verify.mutating import leaving_out
from replitree.verify.mutations import Asked
from replitree.verify.mutations import Change as EffectChange
from replitree.verify.mutations_table import Patches


def _of_host(operation: Operation, commit: Commit) -> bool:
    del commit
    return isinstance(operation, Check) and operation.path.endswith("/host")


def _of_mark(operation: Operation, commit: Commit) -> bool:
    del commit
    return isinstance(operation, Check | Delete) and operation.path.endswith("/restoring")


def _of_parent(operation: Operation, commit: Commit) -> bool:
    again = sum(each.path == operation.path for each in commit.operations) > 1
    return isinstance(operation, Create) and again and operation is not _first(operation.path, commit)


def _first(path: str, commit: Commit) -> Operation:
    return next(each for each in commit.operations if each.path == path)


def _never_again(replica: Replica, metadata: bytes, there: Node, mark: Node | None) -> str:
    """Refuse whatever is there already."""
    del metadata, there, mark
    return f"table {replica.table.name} is there"


def _own_or_not(replica: Replica, metadata: bytes, there: Node, mark: Node | None) -> None:
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


def _keeping(run: Any, parts: Mapping[Part, str], shared: Any) -> Generator[Any, Any, bool | None]:
    """Register what is not registered, and let be what is."""
    del shared
    own: tuple[str, ...] = (yield Children(layout.parts(run.replica))) or ()
    left = {part: content for part, content in sorted(parts.items()) if part.name not in own}
    for part, content in left.items():
        yield Commit(*run.proof, Create(layout.part(run.replica, part.name), content.encode()))
    return True if left else None


def taken_over_by_itself(*_: Any) -> EffectChange:
    """Take an own commit that comes late for that of somebody else."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(outcome, Refused) and "/parts/" in outcome.operation.path:
            return Refused(effect.operations[0], Reason.BAD_VERSION)
        return outcome

    return change


unfenced = leaving_out(_of_host)
unmarked = leaving_out(_of_mark)
in_its_first_parent = leaving_out(_of_parent)

GOOD_AT_ONCE: Patches = {(procedures, "LOST"): NOT_LOST}
NEVER_AGAIN: Patches = {(procedures, "_problem"): _never_again}
OWN_OR_NOT: Patches = {(procedures, "_problem"): _own_or_not}
WHOLE_OR_NOT: Patches = {(restoring, "whole_parts"): _whole_or_not}
FIRST_AGAIN: Patches = {(procedures, "first_parent"): _first_again}
KEEPING: Patches = {(procedures, "_register"): _keeping}
NEVER_DETACHED: Patches = {(restoring, "detached_parts"): _never_detached}
