"""Which messages the model can forget: their senders wait for no answer, and they can't change anything any more."""

from __future__ import annotations

from replitree.tablet.group import store
from replitree.tablet.group.effects import Fence
from replitree.tablet.group.member import (
    AskBarrier,
    AskFence,
    Holdings,
    Look,
    Raise,
    Request,
    Scan,
    Sweep,
    Write,
    may_write,
)
from replitree_verify.tablets.damage import can_be_read
from replitree_verify.tablets.model import TABLET


def is_dead(held: Holdings, request: Request | store.StoreRequest) -> bool:
    """Whether a request can never change a member that holds this, whatever else it gets to hold."""
    match request:
        case Write(blobs=blobs, restorer=restorer):
            # Fences and blobs only grow, so what is refused or stored now will be so for good.
            return all(
                not may_write(held.fence(blob.tablet), blob, restorer) or held.index(blob) is not None
                for blob, _ in blobs
            )
        case Raise(tablet=tablet, fence=fence):
            return _is_raised(held.fence(tablet), fence)
        case Scan(fence=fence) | Look(fence=fence):
            return fence is None or _is_raised(held.fence(TABLET), fence)
        case AskFence() | AskBarrier():
            return True
        case Sweep(collection=collection):
            fence = held.fence(collection.tablet)
            barrier = held.barrier(collection.tablet, collection.channel)
            is_fenced = fence is not None and collection.order[0] <= fence.generation
            return is_fenced or collection.order <= barrier.order
        # A store's objects below a barrier are gone for every reader, whether they are deleted yet or not.
        case store.CreateBlobs(blobs):
            return all(held.index(blob) is not None or store.is_swept(held, blob) for blob, _ in blobs)
        case store.MendBlobs(blobs):
            return all(can_be_read(held, blob) for blob, _ in blobs)
        case store.ReplaceState(tag=tag):
            return store.state_of(held) != tag
        case store.DeleteBlobs(blobs):
            return all(store.is_swept(held, blob) for blob in blobs)
        case store.ReadState() | store.List() | store.Read():
            return True


def _is_raised(known: Fence | None, fence: Fence) -> bool:
    return known is not None and known.generation >= fence.generation
