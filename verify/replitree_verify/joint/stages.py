"""What the threads of a model of joint inserts run: the stages of the product, and what their clients hear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import FailEntry, SettleEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.sharded.coordinator import (
    EndBeside,
    JointRequest,
    KeepOwn,
    OwnGone,
    TakeOwn,
    insert_jointly,
)
from replitree.protocol.program.sharded.participant import (
    AcceptRows,
    AwaitForgetting,
    AwaitGivingUp,
    Hold,
    LetGoRows,
    forget_stale,
    give_up_prepared,
    prepare_rows,
)
from replitree.protocol.program.sharded.token_cleaner import clean_joint_tokens, forget_stream_of_all
from replitree.protocol.program.stages import AwaitCleaning, End, ReportTrouble, Stage, Then
from replitree.protocol.sharded.joint_insert import JointInserted, MapChanged, TokensTaken
from replitree.protocol.sharded.prepare import Abandonment, Participant, ParticipantGone
from replitree.protocol.state.start import sweep_staging
from replitree.protocol.upkeep.clean_blocks import Block, Window


@dataclass(frozen=True, slots=True)
class Tell:
    """A replica tells its client what became of what it was asked; `waits`: the client waits for the end of a quorum."""

    outcome: Any
    waits: bool = False


@dataclass(frozen=True, slots=True)
class ReadQueue:
    """A replica has pulled all of its log.  Outcome: `Loaded`."""


@dataclass(frozen=True, slots=True)
class HasLeft:
    """A replica has let go of a share that had left its disk."""

    share: str


MEMORY = (
    AcceptRows,
    Hold,
    LetGoRows,
    TakeOwn,
    KeepOwn,
    EndBeside,
    ReportTrouble,
    AwaitGivingUp,
    AwaitForgetting,
    AwaitCleaning,
    Tell,
)
"""Effects on the memory of a process."""

ALONE = (fx.AdoptEpoch, fx.Sync, fx.ChildrenMany, *MEMORY)
"""Effects that are taken together with the step before.

A process is told of its epoch with the answer to its commit; a commit proves which parents of logs are open.  Reads of logs are
no steps of their own either: an entry that is searched for never changes, and one that is not there when its commit was fenced
never comes.
"""


HEARD: Mapping[Any, str] = {
    JointInserted: "inserted",
    MapChanged: "map changed",
    ParticipantGone: "participant gone",
    OwnGone: "own gone",
    TokensTaken: "tokens taken",
    fx.InDoubt: "in doubt",
    Abandonment.REMOVED: "abandoned",
    Abandonment.COMMITTED: "committed before",
}
"""The rare branch that an outcome is."""

ENDS = {SettleEntry: "settled", FailEntry: "failed"}
"""The rare branch that the end of a quorum is."""


def reads_log(effect: Any) -> bool:
    """Whether an effect reads entries of a log."""
    paths = (effect.path,) if isinstance(effect, fx.Get) else effect.paths if isinstance(effect, fx.GetMany) else ("",)
    return "/log-" in paths[0]


def take_part(replica: Replica, request: fx.RequestId, is_apart: bool) -> Stage:
    """Prepare a client's rows, as a participant in the coordinator's process or apart from it, and tell."""
    ended = yield from prepare_rows(replica, request, 1, is_apart)
    assert isinstance(ended, End)
    yield Tell(ended.outcome)
    return None


def coordinate(replica: Replica, request: fx.RequestId, asked: JointRequest, is_staged: bool) -> Stage:
    """Stage the coordinator's rows unless that is done, commit, and tell."""
    if not is_staged:
        yield from prepare_rows(replica, request, 1, False)
    ended = yield from insert_jointly(replica, request, asked)
    assert isinstance(ended, End | Then)
    yield Tell(ended.outcome, isinstance(ended, Then))
    return None


def let_go(participant: Participant) -> Stage:
    """Give up what was prepared, and tell; `participant` is what the process takes its turn for."""
    del participant
    ended = yield from give_up_prepared()
    assert isinstance(ended, End)
    yield Tell(ended.outcome)
    return None


def clean(replica: Replica, epoch: fx.Epoch, known: tuple[tuple[fx.BlockId, Block], ...]) -> Stage:
    """Forget every token."""
    del epoch
    yield from clean_joint_tokens(replica, Window(count=0), known)
    return None


def forget(replica: Replica, epoch: fx.Epoch, stream: fx.StreamId) -> Stage:
    """Forget a stream."""
    del epoch
    yield from forget_stream_of_all(replica, stream)
    return None


def begin_anew(replica: Replica, idle: tuple[fx.StagingId, ...]) -> Stage:
    """Do what a start does behind its activation, and forget what is stale then."""
    loaded = yield ReadQueue()
    yield from sweep_staging(idle, loaded)
    yield from forget_stale(replica)
    return None
