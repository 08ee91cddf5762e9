"""The mutants of lost parts: proofs left out, and what the execution must not make of rows that turn up again."""

# ruff: noqa: SLF001 - a mutation reaches into what it breaks

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import msgspec

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part
from replitree.protocol.execute import execute_lost
from replitree.protocol.program import mender
from replitree.protocol.program.mender_effects import AwaitLoss, BrokenNotes, Losing, PutBack
from replitree.protocol.program.stages import ReportTrouble
from replitree.protocol.rescue import recover
from replitree.protocol.state.registration import View, broken_value
from replitree.protocol.upkeep import lost
from replitree_verify.mutants.mutant import Mutant
from replitree_verify.mutations.changes import Asked, Change, changed
from replitree_verify.mutations.stages import leaving_out, with_change, with_others
from replitree_verify.mutations.table import Patches, patched, with_patches
from replitree_verify.world.kernel import Stage as StageFunction


def _asking(change: Any) -> dict[str, StageFunction]:
    return with_change(change, "declare")


def _asking_with(patches: Patches) -> dict[str, StageFunction]:
    return with_others(patches, "declare")


def without_queue_checks(*_: Any) -> Change:
    """Check no queue entry and no pointer."""
    return _leaving_out(
        lambda each: isinstance(each, fx.Check) and ("/queue/" in each.path or "log_pointer" in each.path)
    )


def without_bumps(replica: Replica, *_: Any) -> Change:
    """Bump no epoch but the own one."""
    own = layout.host(replica)
    return _leaving_out(lambda each: isinstance(each, fx.Set) and each.path.endswith("/host") and each.path != own)


def without_own_bump(replica: Replica, *_: Any) -> Change:
    """Only check the own epoch."""
    own = layout.host(replica)

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            operations = (
                fx.Check(own, each.version) if isinstance(each, fx.Set) and each.path == own else each
                for each in effect.operations
            )
            effect = fx.Commit(*operations)
        return (yield effect)

    return change


def without_part_checks(replica: Replica, *_: Any) -> Change:
    """Leave the checks of broken registrations out."""
    del replica
    return _leaving_out(lambda each: isinstance(each, fx.Check) and "/parts/" in each.path)


def without_others(replica: Replica, *_: Any) -> Change:
    """Neither bump the epochs of others nor check their registrations."""
    own = layout.replica_path(replica)
    return _leaving_out(lambda each: isinstance(each, fx.Check | fx.Set) and _is_of_another(each.path, own))


def _is_of_another(path: str, own: str) -> bool:
    return "/replicas/" in path and not path.startswith(f"{own}/") and ("/parts/" in path or path.endswith("/host"))


def keeping_tokens(replica: Replica, *_: Any) -> Change:
    """Free no token."""
    del replica
    return _leaving_out(lambda each: isinstance(each, fx.Delete) and "/blocks/" in each.path)


def uncounted(replica: Replica, *_: Any) -> Change:
    """Free tokens without counting."""
    return _leaving_out(lambda each: isinstance(each, fx.Set) and each.path == layout.blocks(replica.table))


def _leaving_out(is_left_out: Callable[[fx.Operation], bool]) -> Change:
    return leaving_out(lambda operation, _: is_left_out(operation))()


def _writer_ignored(
    replica: Replica, epoch: fx.Epoch, part: Part, insert: Any, *, is_self: bool
) -> Generator[Any, Any, Any]:
    other = None if insert is None else _from_nobody(insert)
    return (yield from _PROVE(replica, epoch, part, other, is_self=is_self))


def _from_nobody(insert: Any) -> Any:
    """Return an insert that seems to come from no replica."""
    return msgspec.structs.replace(insert, replica="nobody")


def _freed_anyway(replica: Replica, insert: Any) -> fx.Procedure[tuple[fx.Operation, ...]]:
    one = None if insert is None else msgspec.structs.replace(insert, parts=insert.parts[:1])
    return (yield from _FREED(replica, one))


_PROVE = lost._prove_without
_FREED = lost._freed_blocks


def _freed_whoever_has_it(replica: Replica, insert: Any) -> fx.Procedure[tuple[fx.Operation, ...]]:
    """Free the token whatever insert has it by now."""
    if insert is None:
        return ()
    paths = tuple(layout.block(replica.table, block) for block in insert.blocks)
    many = yield fx.GetMany(paths)
    return tuple(
        fx.Delete(path, node.version) for path, node in zip(paths, many.nodes, strict=True) if node is not None
    )


def _only_registered(replica: Replica, *arguments: Any, **named: Any) -> Generator[Any, Any, Any]:
    """Take the broken registrations for proof, whatever is on its way."""
    del replica, arguments, named
    yield from ()
    return ()


def _anything_is_broken(value: bytes) -> bool:
    del value
    return True


def _finding_no_copy(*_: Any) -> Change:
    """Overlook the copies of a part."""

    def change(effect: Any) -> Asked:
        return () if isinstance(effect, PutBack) else (yield effect)

    return change


def _as_searched(content_hash: str) -> bytes:
    return broken_value(content_hash, is_searched=True)


def _nothing_is_broken(value: bytes) -> bool:
    del value
    return False


def _asking_and_foreseeing(patches: Patches) -> dict[str, StageFunction]:
    """Ask with functions exchanged, and only when the same functions say that it would succeed."""
    declares = with_patches(lost.declare_lost, patches)

    def foreseeing(*_: Any) -> Change:
        def change(effect: Any) -> Asked:
            if isinstance(effect, AwaitLoss):
                effect = replace(effect, declares=declares)
            return (yield effect)

        return change

    return {"declare": with_patches(changed(mender.declare, foreseeing), patches)}


def _is_the_same(own: bytes | None, theirs: bytes) -> bool:
    return own == theirs


def _is_never(*_: Any) -> bool:
    return False


def _reading_notes_once(replica: Replica, notes: BrokenNotes, *_: Any) -> Change:
    """Read the notes under the first epoch of a process only."""

    def change(effect: Any) -> Asked:
        is_again = notes.epoch is not None and isinstance(effect, fx.Children) and effect.path == layout.parts(replica)
        return notes.parts if is_again else (yield effect)

    return change


def _without_trouble(*_: Any) -> Change:
    """Keep the epoch after a note in doubt."""

    def change(effect: Any) -> Asked:
        return None if isinstance(effect, ReportTrouble) else (yield effect)

    return change


def _taking_empty_parts_out(*_: Any) -> Change:
    """Take a part out as long as the queue declares it lost, also the empty one."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        return tuple((name, "") for name, _ in outcome) if isinstance(effect, Losing) else outcome

    return change


def _nothing_removed(*_: Any) -> fx.Procedure[None]:
    yield from ()


LOST_PARTS = (
    Mutant(
        "lost-though-to-come",
        "who declares a part lost does not ask whether others still wait for it, or have not pulled it",
        "lost_writer_away",
        "LOST",
        _asking_with({(lost, "_prove_not_brought"): _only_registered}),
    ),
    Mutant(
        "lost-without-writer",
        "who declares a part lost does not wait for its writer, which is away",
        "lost_writer_away",
        "LOST",
        _asking_with({(lost, "_prove_without"): _writer_ignored}),
    ),
    Mutant(
        "lost-while-registered",
        "a part is declared lost without checking that it is still in the queues of others, and not pulled by them",
        "lost_fetched",
        "LOST",
        _asking(without_queue_checks),
    ),
    Mutant(
        "lost-without-new-epochs",
        "a part is declared lost without bumping the epochs of others",
        "lost_fetched",
        "LOST",
        _asking(without_bumps),
    ),
    Mutant(
        "lost-while-merging",
        "who declares a part lost does not bump its own epoch, under which it may be merging it",
        "lost_merging",
        "LOST",
        _asking(without_own_bump),
    ),
    Mutant(
        "lost-though-whole",
        "who declares a part lost takes any registration for a broken one",
        "lost_fetched",
        "LOST",
        _asking_with({(lost, "is_broken"): _anything_is_broken, (lost, "has_searched"): _anything_is_broken}),
    ),
    Mutant(
        "lost-though-kept",
        "who declares a part lost does not ask whether the others have searched their disks for copies",
        "lost_kept",
        "LOST",
        _asking_with({(lost, "has_searched"): _anything_is_broken}),
    ),
    Mutant(
        "lost-though-kept-away",
        "the same of a replica that is away",
        "lost_kept_away",
        "LOST",
        _asking_with({(lost, "has_searched"): _anything_is_broken}),
    ),
    Mutant(
        "lost-though-kept-by-recovering",
        "a replica that recovers takes the value of its source's broken part: it says of its own disk that it was searched",
        "lost_kept_recovering",
        "LOST",
        patched({(recover, "broken_value"): _as_searched}, "recover_state"),
    ),
    Mutant(
        "searched-without-looking",
        "a replica says of a broken part that it has searched its disk, and has not looked for copies",
        "lost_kept",
        "LOST",
        with_change(_finding_no_copy, "mend"),
    ),
    Mutant(
        "notes-read-once",
        "a process reads once which of its parts are noted broken: a note whose answer was lost stays on a whole part",
        "lost_note_doubt",
        "LOST",
        with_change(_reading_notes_once, "tell"),
    ),
    Mutant(
        "note-in-doubt-believed",
        "a process does not get another epoch after a note whose answer was lost, which takes place later",
        "lost_note_doubt",
        "LOST",
        with_change(_without_trouble, "tell"),
    ),
    Mutant(
        "empty-part-taken-out",
        "the mender takes an empty part for the lost one while its entry is still in the queue, and takes it out",
        "lost_alone_crash",
        "CONVERGES",
        with_change(_taking_empty_parts_out, "mend"),
    ),
    Mutant(
        "lost-though-mended",
        "that a registration is broken is not checked in the commit",
        "lost_mended",
        "LOST",
        _asking(without_part_checks),
    ),
    Mutant(
        "token-of-half-an-insert",
        "the token of an insert is freed although another part of it is there",
        "lost_partitions",
        "LOST",
        _asking_with({(lost, "_freed_blocks"): _freed_anyway}),
    ),
    Mutant(
        "token-of-lost-kept",
        "the token of a lost insert stays taken",
        "lost_again",
        "LOST",
        _asking(keeping_tokens),
    ),
    Mutant(
        "token-of-another-freed",
        "the token of a lost insert is freed although another insert has taken it since",
        "lost_both_ask",
        "LOST",
        _asking_with({(lost, "_freed_blocks"): _freed_whoever_has_it}),
    ),
    Mutant(
        "token-freed-uncounted",
        "that a token is freed is not counted in `blocks`: one that was forgotten and taken anew goes with the lost part",
        "lost_ids",
        "WINDOW",
        _asking(uncounted),
    ),
    Mutant(
        "lost-though-returned",
        "nothing in the commit notices that a holder whose registration was broken has come back, whole",
        "lost_holder_returns",
        "LOST",
        _asking(without_others),
    ),
    Mutant(
        "broken-counts-as-holder",
        "a replica whose registration says broken is believed to have the part, so it is never declared lost",
        "lost_everywhere",
        "CONVERGES",
        _asking_and_foreseeing({(lost, "is_broken"): _nothing_is_broken}),
    ),
    Mutant(
        "broken-source-believed",
        "a replica that recovers takes a broken registration of its source for the truth, and gives its own whole part away",
        "lost_source",
        "CONVERGES",
        patched({(recover, "_is_as_good"): _is_the_same}, "recover_state"),
    ),
    Mutant(
        "made-of-lost-rows-kept",
        "what a fenced merge has published of lost rows is not set aside when the loss is executed",
        "lost_merging",
        "LOST",
        patched({(execute_lost, "_remove_made_of"): _nothing_removed}, "execute_next"),
    ),
    Mutant(
        "lost-while-made",
        "the loss of a part is executed while something is still being made of it",
        "lost_while_made",
        "LOST",
        patched({(execute_lost, "_is_making"): _is_never}, "execute_next"),
    ),
    Mutant(
        "merge-of-lost-rows",
        "a merge does not wait for the loss of a source that is in the queue, and takes rows that have turned up",
        "lost_fetched",
        "LOST",
        patched({(View, "hides_kept"): lambda _view, _result: False}, "make_next"),
    ),
)
"""Mutations of declaring parts lost, and of what comes after."""
