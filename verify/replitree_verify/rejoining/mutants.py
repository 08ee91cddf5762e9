"""Broken rules of replicas that join again; each must be found by name."""

from __future__ import annotations

from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core import epochs, layout
from replitree.protocol.core.layout import Replica, Table
from replitree.protocol.membership import table
from replitree.protocol.shares.share import LetGo
from replitree_verify.engine.small_search import Mutant
from replitree_verify.mutations.longlife import BeginsAnew

_NOTED = epochs.Noted


class _NotesNothing(_NOTED):
    @override
    def noting(self, last: fx.Version) -> tuple[fx.Operation, ...]:
        del last
        return ()


class _CountsTo(_NOTED):
    """Brings `host` to the last epoch that a process had, not past it."""

    @override
    def passing(self) -> tuple[fx.Operation, ...]:
        found = super().passing()
        return (
            found if self.last is None else found[:-2]
        )  # the last epoch of a process is one below the mark of the drop


class _ProvesNoNote(_NOTED):
    """Counts past the note that it has read, and does not prove that there is no newer one."""

    @override
    def passing(self) -> tuple[fx.Operation, ...]:
        return tuple(each for each in super().passing() if not isinstance(each, fx.Check))


class _ProvesNoAbsence(_NOTED):
    """Believes that no replica has had the name when it has read no note."""

    @override
    def passing(self) -> tuple[fx.Operation, ...]:
        return () if self.last is None else super().passing()


def _releases_nothing(_replica: Replica, _epoch: fx.Epoch) -> fx.Procedure[LetGo]:
    yield from ()
    return LetGo(())


def _without_incarnation(table_: Table) -> str:
    return f"{table_.path}/{layout.REPLICAS}"


def _at_any_rate(parent: str, _proof: fx.Check) -> fx.Procedure[bool]:
    """Delete the children of a node, whether or not the table is being dropped."""
    return (yield from _DELETE_CHILDREN(parent, fx.Check("/", fx.ANY_VERSION)))


def _mark_whichever(table_: Table) -> fx.Procedure[table.TableOutcome]:
    outcome = yield fx.Commit(fx.Create(layout.dropped(table_)))
    return table.TableOutcome.DONE if isinstance(outcome, fx.Applied) else table.TableOutcome.UNSETTLED


_DELETE_CHILDREN = table._delete_children  # noqa: SLF001 - what is broken here


def _mutant(name: str, noted: type[epochs.Noted], model: str, breaks: str, description: str) -> Mutant:
    return Mutant(name, description, model, breaks, {(table, "Noted"): noted})


MUTANTS = (
    _mutant(
        "epochs-begin-anew",
        BeginsAnew,
        "rejoin_register",
        "HELD",
        "a replica that joins again has a node at version 0",
    ),
    _mutant("epochs-not-noted", _NotesNothing, "rejoin_count", "COUNTED", "who drops a replica notes nothing"),
    _mutant(
        "epochs-reached",
        _CountsTo,
        "rejoin_append",
        "FENCED",
        "a joining counts to the epochs of a name, not past them",
    ),
    _mutant(
        "note-unproved",
        _ProvesNoNote,
        "rejoin_again",
        "HELD",
        "a joining does not prove that the note is still the last",
    ),
    _mutant(
        "absence-unproved", _ProvesNoAbsence, "rejoin_first", "HELD", "a joining does not prove that there is no note"
    ),
    Mutant(
        "marks-outlive-drop",
        "the marks of a replica that is dropped stay",
        "rejoin_leave",
        "OWN",
        {(table, "release"): _releases_nothing},
    ),
    *(
        Mutant(
            name,
            f"the nodes of a table's replicas have the same names in every table of its name; {how}",
            model,
            breaks,
            {(layout, "replicas"): _without_incarnation},
        )
        for name, how, model, breaks in (
            ("incarnation-left-out", "a drop and a creation", "remade_append", "FENCED"),
            ("incarnation-left-out-restored", "a restore", "remade_restored", "HELD"),
        )
    ),
    Mutant(
        "any-table-marked",
        "who begins the drop of a table does not prove which one it is",
        "remade_doubt",
        "FENCED",
        {(table, "mark_dropped"): _mark_whichever},
    ),
    Mutant(
        "removed-unmarked",
        "who removes a dropped table does not prove that it is still this one",
        "remade_helped",
        "FENCED",
        {(table, "_delete_children"): _at_any_rate},
    ),
)

__all__ = ["MUTANTS"]
