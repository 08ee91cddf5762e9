"""An insert whose files are missing when it publishes them: inserted if this process has executed it, otherwise unknown."""

from __future__ import annotations

import pytest

from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.insert.insert import GroupEnd, Inserter, Request, insert

TABLE = TablePlace("/replitree/tables/t")
REPLICA = Replica(TABLE, "r1")
INDEX, EPOCH = fx.LogIndex(7), fx.Epoch(3)


def inserted(pointer: int, queued: bool, epoch: int) -> tuple[GroupEnd, list[fx.ClientAnswer]]:
    """Insert where the files are missing, and coordination has this pointer, queue and epoch of the replica."""
    answers: list[fx.ClientAnswer] = []
    nodes = {
        layout.log_pointer(REPLICA): fx.Node(layout.pointer_value(fx.LogIndex(pointer), ()), fx.Version(pointer)),
        layout.queue_entry(REPLICA, INDEX): fx.Node(b"", fx.Version(0)) if queued else None,
        layout.host(REPLICA): fx.Node(b"me", fx.Version(epoch)),
    }

    def perform(effect: fx.Effect) -> object:
        match effect:
            case fx.Stage():
                return fx.Staged((fx.StagedPart("all", 1, 1, "hash"),))
            case fx.Commit(operations):
                created = [each.path for each in operations if isinstance(each, fx.Create)]
                return fx.Applied((*created[:-1], layout.log_entry(TABLE, INDEX)))
            case fx.Publish(_, names):
                return fx.Published(tuple(part for _, part in names))
            case fx.GetMany(paths):
                return fx.Many(tuple(nodes[path] for path in paths))
            case fx.Answer(_, answer):
                answers.append(answer)
                return None
        raise AssertionError(effect)

    inserter = Inserter(REPLICA, b"me", fx.LogIndex(0))
    requests = (Request(fx.RequestId(1), fx.BlockId("a")),)
    return run(insert(inserter, EPOCH, fx.StagingId("s"), requests), perform), answers


def test_an_executed_insert_was_inserted_whatever_has_removed_its_files() -> None:
    assert inserted(INDEX + 1, queued=False, epoch=EPOCH) == (GroupEnd(), [fx.Inserted(INDEX)])


@pytest.mark.parametrize(
    ("pointer", "queued", "epoch"),
    [
        pytest.param(INDEX + 1, True, EPOCH, id="still to be executed: its disk has lost the rows"),
        pytest.param(INDEX, False, EPOCH, id="still to be pulled"),
        pytest.param(INDEX + 1, False, EPOCH + 1, id="executed, or recovered, under another epoch"),
    ],
)
def test_an_insert_whose_files_are_missing_is_in_doubt_without_that_proof(
    pointer: int, queued: bool, epoch: int
) -> None:
    assert inserted(pointer, queued, epoch) == (GroupEnd(must_activate=True), [fx.MaybeInserted()])
