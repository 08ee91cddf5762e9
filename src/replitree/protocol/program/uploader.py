"""The uploader: gives names to what a client puts into the object store, and takes what it has put.

`begin_upload` answers a client's request for names, after `resume_upload` if an earlier process has begun the upload.  Then the
client's tasks put objects.  `seal_upload` answers its request to commit; after it the parts are staged like any others, with
manifests that name the shares.

Absent on purpose: the rules of attempts (`replitree.protocol.shares.uploading`).  `upkeep` gives up the attempts of an upload
that is gone.
"""

from __future__ import annotations

from replitree.protocol.core.effects import Epoch
from replitree.protocol.program.stages import End, ForgetUpload, NoteUpload, Stage
from replitree.protocol.shares import uploading
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer


def begin_upload(sharer: Sharer, epoch: Epoch, shares: tuple[ShareId, ...]) -> Stage:
    """Note shares of an upload, at least one; find out whether the client may learn their names."""
    # The disk notes them first, because an activation gives up each attempt of which the disk has nothing.
    yield NoteUpload(shares)
    is_noted = yield from uploading.begin_attempts(sharer, epoch, shares)
    if not is_noted:
        yield ForgetUpload(shares)
    return End(is_noted)


def resume_upload(sharer: Sharer, shares: tuple[ShareId, ...]) -> Stage:
    """Forget those shares that an earlier process noted on the disk alone; find out which are noted."""
    noted = yield from uploading.noted_attempts(sharer, shares)
    # The earlier process ended before coordination noted these, so no client knows their names.
    lost = tuple(share for share in shares if share not in noted)
    if lost:
        yield ForgetUpload(lost)
    return End(noted)


def seal_upload(sharer: Sharer, shares: tuple[ShareId, ...]) -> Stage:
    """Find out whether parts can be made of the objects of an upload; the outcome is that of `uploading.take_attempts`."""
    return End((yield from uploading.take_attempts(sharer, shares)))


__all__ = ["begin_upload", "resume_upload", "seal_upload"]
