"""What may happen next in a model of merges whose results somebody else puts."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, cast

from typing_extensions import override

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Made
from replitree.protocol.shares.share import (
    LookAtObjects,
    ObjectsInDoubt,
    ObjectsThere,
    ShareId,
)
from replitree_verify.merging.scene import WAITING, MergeScene
from replitree_verify.merging.tasks import AwaitLeft
from replitree_verify.prepared.tasks import BeginUpload, ForgetUpload, ListUploads, TakePrepared, attempt
from replitree_verify.prepared.world import World
from replitree_verify.shared_tables.scene import Outcomes
from replitree_verify.shared_tables.world import CONTENT, PIECES, TABLE
from replitree_verify.world.objects import PutObjects


class PreparedScene(MergeScene):
    """The steps of one model."""

    @override
    def first(self) -> World:
        """Return the world in which everybody has the source registered, and the merge in its queue."""
        begun = super().first()
        return World(**{field.name: getattr(begun, field.name) for field in fields(begun)})

    @override
    def is_at_rest(self, world: Any) -> bool:
        """Whether nothing is left to do; a mark that was taken for what was put may still be given up."""
        left = (effect for effect in self._effects(world) if isinstance(effect, AwaitLeft))
        return super().is_at_rest(world) and all(self._waited(world, effect) is None for effect in left)

    @override
    def _is_working(self, world: Any, name: str) -> bool:
        if super()._is_working(world, name):
            return True
        place = world.seats[self.names.index(name)].place
        waits = isinstance(self._kernel.effect(place), WAITING)
        return bool(place) and not waits and self._kernel.conversation(place).stage is attempt

    @override
    def _perform(self, world: Any, number: int, effect: Any) -> Outcomes:
        match effect:
            case BeginUpload() | ListUploads() | ForgetUpload() | TakePrepared():
                yield _of_upload(world, number, self.names[number], effect)
            case LookAtObjects(shares):
                whole = all(world.is_whole(share) for share in shares)
                yield "looked", world, ObjectsThere() if whole else ObjectsInDoubt("not there")
            case PutObjects(share):
                yield "stored", _put(world, share), ObjectsThere()
            case _:
                yield from super()._perform(world, number, effect)


def _of_upload(
    world: World, number: int, name: str, effect: BeginUpload | ListUploads | ForgetUpload | TakePrepared
) -> tuple[str, Any, Any]:
    """Return what becomes of an effect on uploads; a process knows the shares of those that its disk has."""
    seat = world.seats[number]
    match effect:
        case BeginUpload():
            share = ShareId(f"{name}-{seat.count}")
            begun = world.with_seat(number, replace(seat, count=seat.count + 1, new=seat.new | {share}))
            return "begun", cast("World", begun).with_upload(number, share), share
        case ListUploads():
            found = world.uploads_of(number)
            return "listed", world.with_seat(number, replace(seat, new=seat.new.union(found))), found
        case ForgetUpload(share):
            forgotten = replace(seat, new=seat.new - {share})
            return "forgotten", world.without_upload(number, share).with_seat(number, forgotten), None
        case TakePrepared(share):
            staged = replace(seat, disk=replace(seat.disk, staged=(share,)))
            return "staged", world.without_upload(number, share).with_seat(number, staged), Made(CONTENT)


def _put(world: World, share: ShareId) -> World:
    """Return the world with the objects of a share; when nobody waits for them any more, they are fsck's to find."""
    waited = any(world.tree.exists(place(TABLE, share)) for place in (layout.writing, layout.share))
    there = replace(world, objects=world.objects | {(share, piece) for piece in range(PIECES)})
    return there if waited else replace(there, stray=there.stray | {share})


__all__ = ["PreparedScene"]
