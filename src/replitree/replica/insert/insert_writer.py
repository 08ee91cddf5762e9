"""Writing the rows of inserts as staged parts.

The rows of a group become one part per partition; an upload and a detached part are adopted as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from replitree.errors import BadInput, CorruptPart, StoreError
from replitree.protocol.core.effects import StagingId
from replitree.replica.kit.payloads import Detached, Payload, Rows, StagedRewrite, StagedUpload
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.commit_size import PARTS_MAX
from replitree.replica.perform.context import TableContext
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import PartManifest

if TYPE_CHECKING:
    pass

UNWRITABLE = (ValueError, TypeError, NotImplementedError, ArithmeticError, LookupError)
"""How Arrow says that it can't write values; its errors are subclasses of these."""


class InsertWriter:
    """Stages what clients insert into one table replica.

    Parameters
    ----------
    store
        The parts on this disk.
    storage
        The table's object store, where uploads may be.
    availability
        Hears of a disk that fails.
    """

    def __init__(
        self, context: TableContext, store: PartStore, storage: FollowedStorage, availability: Availability
    ) -> None:
        self._context = context
        self._store = store
        self._storage = storage
        self._availability = availability
        self._uploaded: dict[StagingId, StagedUpload | StagedRewrite] = {}

    def stage(self, staging: StagingId, payloads: Sequence[Payload]) -> tuple[PartManifest, ...]:
        """Write a group's payloads as the parts of a staging id."""
        try:
            store, first = self._store, payloads[0]
            match first:
                case (
                    StagedUpload(folder=folder, manifests=manifests) | StagedRewrite(folder=folder, manifests=manifests)
                ):
                    if self._storage.sharing is not None:
                        self._storage.sharing.take(manifests)
                    # This is noted before the parts move: if that fails, `give_back` finds what to undo.
                    self._uploaded[staging] = first
                    store.staged.adopt(folder, staging)
                    return tuple(sorted(manifests, key=lambda manifest: manifest.partition))
                case Detached(name):
                    return (store.staged.attach(name, staging),)
                case Rows(definition=definition, together=together):
                    import pyarrow as pa

                    from replitree.storage.parts.encode import stage_table

                    manifests = stage_table(
                        pa.concat_tables([each.table for each in payloads if isinstance(each, Rows)]),
                        definition,
                        store.staging,
                        prefix=store.staging_prefix(staging),
                        # The table's own limit was checked for each request of the group.
                        partitions_max=max(PARTS_MAX, definition.settings.partitions_per_insert_max),
                        sync=together or True,
                    )
                    store.staged.note(staging, manifests)
                    return manifests
            assert_never(first)
        except CorruptPart:
            raise
        except StoreError as error:
            self._availability.disk_failed(str(error))
            raise
        except UNWRITABLE as error:
            # Arrow's kernels and encoders raise these for rows that they can't encode; nothing was sent.
            self._context.log.defect("rows can't be written")
            raise BadInput(f"the rows can't be written: {type(error).__name__}: {error}") from error

    def give_back(self, staging: StagingId) -> bool:
        """Put what an upload has staged back, so that it can be staged again; False: it is of no upload that is at work."""
        # The block id may be that of an insert whose rows were dropped: then the id is free, and the rows are staged once more.
        upload = self._uploaded.get(staging)
        if upload is None:
            return False
        shares = {manifest.share_id for manifest in upload.manifests if manifest.share_id is not None}
        self._store.staged.give_back(staging, upload.folder, shares)
        if self._storage.sharing is not None:
            self._storage.sharing.uploads.put_back(upload.folder.name, upload.named)
        # The note goes last: a try after an error has to find it, or it removes the rows.
        self._uploaded.pop(staging, None)
        return True

    def forget(self, staging: StagingId) -> None:
        """Forget the uploads of a group that has ended."""
        for staged in [each for each in self._uploaded if each.rpartition(".")[0] == staging]:
            self._uploaded.pop(staged, None)
