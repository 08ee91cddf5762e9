"""Frozen snapshots: a table's parts as they were at one index, kept by hard links until an operator deletes them.

::

    <root>/frozen/<name>/frozen.json      what it is: table, definition, index, parts with their content hashes
    <root>/frozen/<name>/<part>/…         the parts, each whole
    <root>/frozen/.making-<name>/…        begun and not finished; swept

Guarantees: a snapshot appears by one rename when all of it is durable, so one that is listed is whole.  It costs no room for
rows as long as the table still has the parts.  `frozen.json` alone is enough to make the table again somewhere else: it has the
definition's two nodes as they are.

Order of a freeze: link every part → sync its folder → write ``frozen.json`` (synced) → sync → rename → sync ``frozen``.

Absent on purpose: the choice of the parts (the fold knows them), and restoring, which is attaching or inserting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput, CorruptPart, InvalidName
from replitree.storage.files.durable import is_folder, make_folder, rename, store_errors, sync_folder, write_file
from replitree.storage.files.formats import refuse_newer
from replitree.storage.files.sealed_json import seal, unseal
from replitree.storage.parts.manifest import MANIFEST_BYTES_MAX, PartManifest
from replitree.storage.parts.part_folder import NAME_CHARACTERS_MAX, folders, link_part_folder, remove_folder
from replitree.storage.schema.definition import TableDefinition, decode_definition

FORMAT = 2
"""Format with a checksum; descriptions of format 1, of earlier versions, have none."""
FROZEN_FILE = "frozen.json"
MAKING_PREFIX = ".making-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~=+-]*")
_MAKING = re.compile(re.escape(MAKING_PREFIX) + _NAME.pattern)


class FrozenPart(msgspec.Struct, frozen=True):
    """One part of a snapshot: name, size, and the hash of its rows."""

    name: str
    rows: int
    bytes: int
    content_hash: str


class FrozenSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `frozen.json`.

    Attributes
    ----------
    table, table_id
        Whose parts they are.
    index
        The parts are those of the table's log up to this index, which is not included.
    note
        The operator's text: when and why it was frozen.
    metadata, columns
        Values of the nodes of the table's definition.
    parts
        Ascending by name.
    """

    format: int = FORMAT
    table: str
    table_id: str
    index: int
    note: str
    metadata: msgspec.Raw
    columns: msgspec.Raw
    parts: tuple[FrozenPart, ...]

    @property
    def definition(self) -> TableDefinition:
        """The table's definition at that index.  Raises `UnsupportedFormat` when a newer replitree wrote it."""
        return decode_definition(bytes(self.metadata), bytes(self.columns))


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = json_decoder(FrozenSnapshot)


def describe_snapshot(
    parts: Mapping[str, PartManifest], definition: TableDefinition, index: int, note: str
) -> FrozenSnapshot:
    """Say what a snapshot of these parts is."""
    return FrozenSnapshot(
        table=definition.name,
        table_id=definition.table_id,
        index=index,
        note=note,
        metadata=msgspec.Raw(definition.encode_metadata()),
        columns=msgspec.Raw(definition.encode_columns()),
        parts=tuple(FrozenPart(name, m.rows, m.bytes, m.content) for name, m in sorted(parts.items())),
    )


class FrozenFolder:
    """The snapshots of one table.

    Parameters
    ----------
    root
        The folder ``frozen``; it exists.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> tuple[str, ...]:
        """Names of the finished snapshots, ascending."""
        return folders(self._root, _NAME)

    def path(self, name: str) -> Path:
        """Folder of a snapshot, whether it is there or not.  Raises `InvalidName` for what can't be a name."""
        if len(name) > NAME_CHARACTERS_MAX or _NAME.fullmatch(name) is None:
            raise InvalidName(f"{name!r} can't be a snapshot's name: use letters, digits and . _ ~ = + -")
        return self._root / name

    def read(self, name: str) -> FrozenSnapshot:
        """Read what a snapshot is.

        Raises
        ------
        BadInput
            There is none of this name.
        CorruptPart, UnsupportedFormat
            Its description is damaged, or a newer replitree wrote it.
        """
        folder = self.path(name)
        if not is_folder(folder):
            raise BadInput(f"there is no frozen snapshot {name!r}; there are {', '.join(self.names()) or 'none'}")
        with store_errors(f"read the frozen snapshot {name}"), (folder / FROZEN_FILE).open("rb") as file:
            data = file.read(MANIFEST_BYTES_MAX)
            where = str(folder / FROZEN_FILE)
            try:
                data = unseal(data, FORMAT)
                refuse_newer(data, where, FORMAT)
                return _decoder.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise CorruptPart(f"{where} does not describe a snapshot ({error})") from error

    def make(
        self,
        name: str,
        snapshot: FrozenSnapshot,
        sources: Mapping[str, tuple[Path, PartManifest]],
        link: Callable[[Path, PartManifest, Path], None] = link_part_folder,
    ) -> None:
        """Link parts into a new snapshot; one of this name that is the same already stays as it is.

        Parameters
        ----------
        sources
            Folder and manifest of each part.
        link
            Makes a folder with the same files.

        Raises
        ------
        BadInput
            Another snapshot has this name.
        """
        target, making = self.path(name), self._root / f"{MAKING_PREFIX}{name}"
        if is_folder(target):
            # A snapshot of an earlier version's format is the same if everything else is.
            there = msgspec.structs.replace(self.read(name), format=FORMAT)
            if _encoder.encode(there) != _encoder.encode(snapshot):
                raise BadInput(f"there is a frozen snapshot {name!r} already; remove it or choose another name")
        else:
            # Of a freeze that a crash cut short: its links may be of other parts.
            remove_folder(making)
            make_folder(making)
            for part, (source, manifest) in sorted(sources.items()):
                link(source, manifest, making / part)
            write_file(making / FROZEN_FILE, seal(_encoder.encode(snapshot)))
            # All of it is durable before it gets its name.
            sync_folder(making)
            rename(making, target)
        sync_folder(self._root)

    def sweep(self) -> int:
        """Delete what was begun and not finished; return how many."""
        begun = folders(self._root, _MAKING)
        for name in begun:
            remove_folder(self._root / name)
        return len(begun)
