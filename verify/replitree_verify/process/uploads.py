"""Uploads beside replicas on an object store: a replica names a share, a client's task puts its objects, and a part is made.

The replica runs the stages of `replitree.protocol.program.uploader` for the client.  Then it inserts the part; or it keeps the
part as the result of a merge, proposes the merge, and takes the result when it executes that.  The client of an insert asks the
next process again while the disk has its upload; what is kept for a merge is lost with its process.  Each replica has one
client.  The task puts the objects of a share of which a client can have heard, at any later moment: also when the rest is over,
and again after its own death.

NAMED is checked where a client hears a name (`told_too_early`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Effect, Epoch, RequestId, StagingId
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import merged_part, parse_part
from replitree.protocol.execute.making import staged_result
from replitree.protocol.program import inserter, leader, uploader
from replitree.protocol.program.stages import CurrentSharer, End, ForgetUpload, NoteUpload, Stage, Then
from replitree.protocol.shares.share import ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree_verify.process.shares import Performed, discarding
from replitree_verify.world.kernel import Stage as StageFunction
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.objects import PutObjects
from replitree_verify.world.shared_disk import SharedDisk

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitUpload(Effect):
    """Wait, while active, until the client asks for a name.  Outcome: `UploadTurn`."""


@dataclass(frozen=True, slots=True)
class UploadTurn:
    """What the replica works with.

    Attributes
    ----------
    epoch
        Under which it is active.
    named, begun
        A share that no upload has, and those that the disk has noted.
    is_first
        Whether it is the first process of its seat.
    """

    epoch: Epoch
    named: ShareId
    begun: tuple[ShareId, ...]
    is_first: bool


@dataclass(frozen=True, slots=True)
class TellName(Effect):
    """The client hears the name of its share.  Outcome: None."""

    share: ShareId


@dataclass(frozen=True, slots=True)
class HearName(Effect):
    """Wait until a client can have heard of a share.  Outcome: the share."""


@dataclass(frozen=True, slots=True)
class KeepUpload(Effect):
    """What is staged next under an id has the objects of an upload; lost with the process.

    Outcome: True; False when a source of what is to be staged has left the replica.
    """

    staging: StagingId
    share: ShareId
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiscardUpload(Effect):
    """The upload ends, and the disk notes that its shares are to be let go of, unless they are staged.  Outcome: None."""

    shares: tuple[ShareId, ...]


def told_too_early(share: ShareId, tree: Tree, table: TablePlace) -> str | None:
    """Check NAMED where a client hears the name of its share."""
    is_noted = tree.exists(layout.writing(table, share))
    return None if is_noted else f"NAMED: a client hears of {share}, which is not noted"


def perform(effect: Any, me: bytes, memory: Memory, disk: SharedDisk) -> Performed | None:
    """Perform an effect of this room; None while what it waits for is not there."""
    outcome: UploadTurn | bool | None = None
    match effect:
        case AwaitUpload():
            if memory.state is not State.ACTIVE or memory.epoch is None:
                return None
            count = memory.shares.count
            named = ShareId(f"{me.decode()}-uploaded-{count}")
            outcome = UploadTurn(memory.epoch, named, disk.uploads, is_first=not memory.incarnation)
            memory = replace(memory, shares=replace(memory.shares, count=count + 1))
        case KeepUpload(staging, share, sources):
            outcome = all(parse_part(source) in memory.held for source in sources)
            if outcome:
                kept = (*memory.shares.uploads, (staging, share))
                memory = replace(memory, shares=replace(memory.shares, uploads=kept))
        case NoteUpload(shares):
            disk = replace(disk, uploads=(*disk.uploads, *shares))
        case ForgetUpload(shares):
            disk = disk.without_uploads(*shares)
        case DiscardUpload(shares):
            memory, disk = discarding(shares, memory, disk)
    return Performed(outcome, memory, disk)


# --- stages of inserts --------------------------------------------------------------------------------------------------------


def begin_upload(
    replica: Replica, me: bytes, tokens: tuple[tuple[RequestId, BlockId], ...], drops: tuple[str, ...], quorum: int
) -> Stage:
    """Give the client a name, and go on with what an earlier process has begun; parameters as of `accept_insert`."""
    turn: UploadTurn = yield AwaitUpload()
    sharer: Sharer = yield CurrentSharer()
    share = turn.named
    if turn.begun:
        ended = yield from uploader.resume_upload(sharer, turn.begun)
        assert isinstance(ended, End), "no other stage follows"
        if ended.outcome:
            (share,) = ended.outcome
    elif not turn.is_first:
        return None  # the upload became a part, or was discarded, before the earlier process ended
    if share == turn.named and (yield from uploader.begin_upload(sharer, turn.epoch, (share,))) != End(outcome=True):
        return None
    yield TellName(share)
    return Then(take_upload, (replica, me, tokens, drops, quorum, share))


def take_upload(
    replica: Replica,
    me: bytes,
    tokens: tuple[tuple[RequestId, BlockId], ...],
    drops: tuple[str, ...],
    quorum: int,
    share: ShareId,
) -> Stage:
    """Insert a part of what was put, if it is there by now; parameters as of `begin_upload`."""
    sharer: Sharer = yield CurrentSharer()
    if (yield from uploader.seal_upload(sharer, (share,))) != End(ObjectsThere()):
        yield DiscardUpload((share,))
        return None
    # The folder of the first group under the staging id of `Accepted`.
    yield KeepUpload(StagingId(f"{me.decode()}-{tokens[0][0]}.0"), share)
    return Then(inserter.accept_insert, (replica, tokens, drops, quorum))


def put_objects(_task: Replica) -> Stage:
    """Put the objects of a share, some time after its client has heard of it."""
    share: ShareId = yield HearName()
    yield PutObjects(share)
    return None


# --- stages of merges ---------------------------------------------------------------------------------------------------------


def prepare_merge(replica: Replica, sources: tuple[str, ...]) -> Stage:
    """Give the client a name for the result of a merge; give up what an earlier process has begun."""
    turn: UploadTurn = yield AwaitUpload()
    if turn.begun:
        yield DiscardUpload(turn.begun)
    if not turn.is_first:
        return None
    sharer: Sharer = yield CurrentSharer()
    if (yield from uploader.begin_upload(sharer, turn.epoch, (turn.named,))) != End(outcome=True):
        return None
    yield TellName(turn.named)
    return Then(take_result, (replica, sources, turn.named))


def take_result(replica: Replica, sources: tuple[str, ...], share: ShareId) -> Stage:
    """Keep the result of a merge, if it is there by now, and propose the merge."""
    sharer: Sharer = yield CurrentSharer()
    staging = staged_result(merged_part(tuple(map(parse_part, sources))))
    sealed = yield from uploader.seal_upload(sharer, (share,))
    if sealed != End(ObjectsThere()) or not (yield KeepUpload(staging, share, sources)):
        yield DiscardUpload((share,))
        return None
    led = yield from leader.lead(replica, (MergeEntry(replica.name, sources),), sharer)
    # A result whose merge may never get into the log is given up some time.
    if led == End(()):
        yield DiscardUpload((share,))
    return None


DUTIES: dict[str, StageFunction] = {"put": put_objects, "prepare": prepare_merge}
"""What a model can ask for, by name; the next process does it as well."""
