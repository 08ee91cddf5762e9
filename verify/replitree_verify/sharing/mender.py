"""The mender of a replica whose disk was lost: it looks for its registered part in the shares that have its own marks.

The stages are those of `replitree.protocol.program.mender`; no other replica sends the part, and no copy of it is on the disk.
What the store does not tell is not decided, and is looked for again.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from replitree.protocol.core.effects import CurrentEpoch, Epoch, FetchMany, NotFetched
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.run import translate
from replitree.protocol.program import mender
from replitree.protocol.program.mender_effects import (
    AskAgain,
    AwaitLacking,
    BrokenNotes,
    Losing,
    MarkedShares,
    MendTurn,
    PartContent,
    PutBack,
    SeekFiles,
    SeekShares,
    TakeFromStore,
    Telling,
    TellTurn,
    WholeAgain,
)
from replitree.protocol.program.stages import Then
from replitree.protocol.shares.share import LookAtObjects, ObjectsInDoubt, ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import ForgetParts, SharedPart, SharesOf
from replitree.protocol.upkeep import lost
from replitree_verify.sharing.checking import Discard, Keep, OnDisk
from replitree_verify.sharing.process import Process, Running
from replitree_verify.sharing.world import UNANSWERED, replica_of

TRIES_MAX = 2


def mend(name: str, part: str, tries: int = TRIES_MAX) -> Running[Then | None]:
    """Take a registered part again that this disk has lost."""
    replica = replica_of(name)
    epoch: Epoch = yield CurrentEpoch()
    if any(here == part for here, _ in (yield OnDisk(replica))):
        return None
    lacking = tuple(sorted((yield from lost.registered_contents(replica, (part,))).items()))
    if not lacking:
        return None
    rounds = _Mending(Process(replica, epoch), lacking)
    then: Then = yield from rounds.run(mender.mend(replica, BrokenNotes(epoch)))
    return Then(tell, (name, part, epoch, then.arguments[2], rounds.is_undecided, tries))


def tell(
    name: str, part: str, epoch: Epoch, missing: tuple[str, ...], is_undecided: bool, tries: int
) -> Running[Then | None]:
    """Note a part as broken that the store certainly lacks; try again while that is not known."""
    if is_undecided:
        return Then(mend, (name, part, tries - 1)) if tries > 1 else None
    rounds = _Mending(Process(replica_of(name), epoch), ())
    yield from rounds.run(mender.tell(replica_of(name), BrokenNotes(epoch), missing))
    return None


class _Mending:
    """What the mender asks of its process, of the disk and of the store, in one stage."""

    def __init__(self, process: Process, lacking: tuple[PartContent, ...]) -> None:
        self._process, self._lacking = process, lacking
        self.is_undecided = False

    @property
    def _replica(self) -> Replica:
        return self._process.replica

    def run(self, stage: Generator[Any, Any, Any]) -> Running[Any]:
        """Run a stage."""
        return self._process.run(translate(stage, self._answer))

    def _answer(self, effect: Any) -> Running[Any]:
        match effect:
            case AwaitLacking():
                return MendTurn(self._lacking, self._process.sharer)
            case PutBack() | SeekFiles() | Losing() | AskAgain():
                return ()
            case FetchMany(fetches):
                return tuple(NotFetched(each.part, "no replica sends it") for each in fetches)
            case SeekShares(parts):
                return parts
            case TakeFromStore(_, marked):
                return (yield from self._take(marked))
            case SharesOf(parts):
                found: tuple[tuple[str, ShareId], ...] = yield OnDisk(self._replica)
                return tuple(SharedPart(part, share, is_new=False) for part, share in found if part in parts)
            case ForgetParts(parts):
                for part in parts:
                    yield Discard(self._replica, part)
                return None
            case Telling(missing):
                return TellTurn(self._process.epoch, missing, missing)
            case WholeAgain():
                return None
        return (yield effect)

    def _take(self, marked: MarkedShares) -> Running[tuple[str, ...]]:
        """Publish the parts of which a share has all its objects; note whether the store did not tell of one."""
        taken: list[str] = []
        for part, shares in marked:
            for share in shares:
                looked = yield LookAtObjects((share,))
                if isinstance(looked, ObjectsThere):
                    yield Keep(self._replica, part, share)
                    taken.append(part)
                    break
                self.is_undecided |= _is_undecided(looked)
        self.is_undecided &= len(taken) < len(marked)
        return tuple(taken)


def _is_undecided(looked: ObjectsInDoubt) -> bool:
    return looked.problem == UNANSWERED


__all__ = ["mend"]
