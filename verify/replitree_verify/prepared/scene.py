"""What may happen next in a model of merges whose results clients put into the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, cast

from typing_extensions import override

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Epoch, LogIndex, Made, Merge
from replitree.protocol.program import executor
from replitree.protocol.program.stages import (
    AwaitParts,
    AwaitUpkeep,
    ForgetUpload,
    LeadTurn,
    LeftDisk,
    LetGoEnded,
    NoteUpload,
    UpkeepTurn,
)
from replitree.protocol.shares.share import LookAtObjects, ObjectsInDoubt, ObjectsThere, ShareId
from replitree.protocol.state.registration import Postponed
from replitree_verify.merging.scene import UPKEEP, MergeScene
from replitree_verify.prepared.clients import KeepResult, NameUpload, prepare, publish
from replitree_verify.prepared.world import World
from replitree_verify.shared_tables.scene import Outcomes, Step
from replitree_verify.shared_tables.world import CONTENT, PIECES, TABLE, Seat, replica_of, sharer_of
from replitree_verify.world.objects import PutObjects


class PreparedScene(MergeScene):
    """The steps of one model."""

    @override
    def _initial(self) -> World:
        """Return the world in which every replica has the source registered, and the merge in its queue."""
        begun = super()._initial()
        return World(**{field.name: getattr(begun, field.name) for field in fields(begun)})

    @override
    def is_at_rest(self, world: Any) -> bool:
        """Whether nothing is left to do, nor for the upkeep of a replica."""
        turns = (
            self._waited(world, number, effect)
            for number, effect in enumerate(self._effects(world))
            if isinstance(effect, AwaitUpkeep)
        )
        return super().is_at_rest(world) and all(turn is None for turn in turns)

    @override
    def _is_constant(self, path: str) -> bool:
        return path == layout.sharing(TABLE)  # the log grows

    # --- processes ------------------------------------------------------------------------------------------------------------

    @override
    def _settled(self, world: Any, number: int) -> Any:
        world = super()._settled(world, number)
        seat = world.seats[number]
        match self._kernel.effect(seat.place):
            case NameUpload():
                share = ShareId(f"{self.names[number]}-{seat.count}")
                return self._go_on(world.with_seat(number, replace(seat, count=seat.count + 1)), number, share)
            case KeepResult(share):
                return self._go_on(world.with_kept(number, share), number, None)
            case AwaitParts():
                assert seat.epoch is not None
                return self._go_on(world, number, LeadTurn(seat.epoch, LogIndex(0)))
        return world

    @override
    def _given_back(
        self, world: Any, number: int, done: tuple[LogIndex, ...], postponed: tuple[Postponed, ...]
    ) -> World:
        world = super()._given_back(world, number, done, postponed)
        return cast("World", world.with_kept(number, None) if done else world)  # what was prepared in vain is removed

    @override
    def _upkeep_turn(self, world: Any, name: str) -> UpkeepTurn | None:
        """Let go of an upload whose client is gone and whose result no process has."""
        number = self.names.index(name)
        place, host = world.seats[number].place, world.tree.get(layout.host(replica_of(name)))
        is_asking = bool(place) and self._kernel.conversation(place).stage in (prepare, publish)
        for share in world.uploads_of(number):
            is_gone = world.kept_by(number) != share and not is_asking and not self._is_beginning(world, name)
            if is_gone and host is not None:
                return UpkeepTurn(sharer_of(name), Epoch(host.version), LeftDisk(share, "", (share,)))
        return super()._upkeep_turn(world, name)

    @override
    def _is_working(self, world: Any, name: str) -> bool:
        return super()._is_working(world, name) or world.kept_by(self.names.index(name)) is not None

    @override
    def _crashes(self, world: Any, number: int, effect: Any) -> Iterator[Step]:
        yield from super()._crashes(world, number, effect)
        share = world.kept_by(number)
        if isinstance(effect, Merge) and share is not None:
            for text, after in super()._crashes(world.without_upload(share), number, effect):
                yield f"{text}, the disk has forgotten the upload", after

    @override
    def _died(self, world: Any, number: int) -> World:
        """Return the world in which a process was killed: the next one knows the uploads that the disk has."""
        died = super()._died(world, number)
        seat = died.seats[number]
        if seat.task == 0:
            here = frozenset(cast("World", died).uploads_of(number))
            place = self._kernel.begin(executor.make_next, replica_of(self.names[number]))
            seat = Seat(new=here, count=seat.count, disk=seat.disk, place=place)
        return cast("World", self._settled(cast("World", died.with_seat(number, seat)).with_kept(number, None), number))

    # --- effects --------------------------------------------------------------------------------------------------------------

    @override
    def _perform(self, world: Any, number: int, effect: Any) -> Outcomes:
        match effect:
            case NoteUpload((share,)):
                seat = world.seats[number]
                yield "noted", _with(world, number, seat.new | {share}).with_upload(number, share), None
            case ForgetUpload((share,)):
                seat = world.seats[number]
                yield "forgotten", _with(world, number, seat.new - {share}).without_upload(share), None
            case LetGoEnded(left, is_gone):
                owner = self.names.index(self.names[number].removesuffix(UPKEEP))
                without = _with(world, owner, world.seats[owner].new.difference(left.shares))
                yield "ended", without.without_upload(left.shares[0]) if is_gone else world, None
            case Merge() if (share := world.kept_by(number)) is not None:
                staged = world.with_disk(number, replace(world.seats[number].disk, staged=(share,)))
                yield "staged", staged.without_upload(share).with_kept(number, None), Made(CONTENT)
            case LookAtObjects(shares):
                whole = all(world.is_whole(share) for share in shares)
                yield "looked", world, ObjectsThere() if whole else ObjectsInDoubt("not there")
            case PutObjects(share):
                yield "stored", _put(world, share), ObjectsThere()
            case _:
                yield from super()._perform(world, number, effect)


def _with(world: World, number: int, new: frozenset[ShareId]) -> World:
    return cast("World", world.with_seat(number, replace(world.seats[number], new=new)))


def _put(world: World, share: ShareId) -> World:
    """Return the world with the objects of a share; when no replica waits for them any more, they are fsck's to find."""
    waited = any(world.tree.exists(place(TABLE, share)) for place in (layout.writing, layout.share))
    there = replace(world, objects=world.objects | {(share, piece) for piece in range(PIECES)})
    return there if waited else replace(there, stray=there.stray | {share})


__all__ = ["PreparedScene"]
