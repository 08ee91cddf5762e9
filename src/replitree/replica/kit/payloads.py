"""What an insert brings: rows, files that a client staged, or a part that lies aside; and what it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from replitree.storage.parts.manifest import PartManifest
from replitree.storage.parts.part_sync import SyncTogether
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class StagedUpload:
    """Part files that a client staged: their folder, checked and synced, and their manifests."""

    folder: Path
    manifests: tuple[PartManifest, ...]

    @property
    def named(self) -> dict[str, PartManifest]:
        """The manifests by the names of their folders."""
        return {manifest.partition: manifest for manifest in self.manifests}


@dataclass(frozen=True, slots=True, eq=False)
class StagedRewrite:
    """What a client has made of parts: its folder, checked and synced; results by their sources, and new parts."""

    folder: Path
    results: Mapping[str, PartManifest]
    inserts: tuple[PartManifest, ...]

    @property
    def manifests(self) -> tuple[PartManifest, ...]:
        """The manifests of all parts."""
        return (*self.results.values(), *self.inserts)

    @property
    def named(self) -> dict[str, PartManifest]:
        """The manifests by the names of their folders."""
        return {**self.results, **{manifest.partition: manifest for manifest in self.inserts}}


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows in the schema of a version of the table; `together` syncs what they are staged as, with that of other tables."""

    table: pa.Table
    definition: TableDefinition
    together: SyncTogether | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Detached:
    """A detached part that is to be attached: its name, and what it was as a part."""

    name: str
    part: str
    manifest: PartManifest


Payload: TypeAlias = Rows | StagedUpload | StagedRewrite | Detached


class Overwrite(Enum):
    """What an insert replaces."""

    NOTHING = ""
    ALL = "all"
    PARTITIONS = "partitions"
