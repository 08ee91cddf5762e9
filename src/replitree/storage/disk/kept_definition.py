"""The table's definition beside its parts: what `replitree restore` needs when coordination has lost everything.

One file, ``<root>/definition.json``, replaced as a whole.  It is synced before anything is written with its columns, so that
no part on this disk is of a schema version that the file does not know.  A damaged one is written anew when the replica starts
(`Definitions.keep_in`), and refused by `restore`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import StoreError, UnsupportedFormat
from replitree.storage.files.durable import rename, store_errors, sync_folder, write_file
from replitree.storage.files.sealed_json import seal, unseal
from replitree.storage.schema.definition import TableDefinition, decode_definition

FILE = "definition.json"
FORMAT = 2
"""Format with a checksum; files of format 1, of earlier versions, have none."""


class KeptDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file: the values of the table's nodes ``metadata`` and ``columns``."""

    format: int = FORMAT
    metadata: msgspec.Raw
    columns: msgspec.Raw


def keep_definition(root: Path, definition: TableDefinition) -> None:
    """Write a table's definition into its folder, durably, unless it is there already.

    Raises
    ------
    StoreError
        The disk is full or failing.
    """
    metadata, columns = msgspec.Raw(definition.encode_metadata()), msgspec.Raw(definition.encode_columns())
    keep_sealed(root / FILE, msgspec.json.encode(KeptDefinition(metadata=metadata, columns=columns)))


def keep_sealed(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file as a whole with JSON and its checksum, unless it is that already.

    Parameters
    ----------
    path, content
        The file; its first field is ``format``.
    durable
        Whether it is on the disk when this returns.

    Raises
    ------
    StoreError
        The disk is full or failing.
    """
    sealed = seal(content)
    with store_errors(f"keep {path.name} in {path.parent}"):
        # Called before every write with new columns: mostly nothing has changed, and nothing is synced.
        if path.exists() and path.read_bytes() == sealed:
            return
        draft = path.parent / f".{path.name}"
        # A crash may have left one.
        draft.unlink(missing_ok=True)
        write_file(draft, sealed, sync=durable)
        rename(draft, path)
        if durable:
            sync_folder(path.parent)


def read_definition(root: Path) -> TableDefinition | None:
    """Read the definition that a table's folder keeps; None when it keeps none.

    Raises
    ------
    UnsupportedFormat
        It was written by a newer replitree.
    StoreError
        It can't be read, or is not what its checksum says.
    """
    path = root / FILE
    with store_errors(f"read {path}"):
        if not path.exists():
            return None
        content = path.read_bytes()
    try:
        kept = json_decoder(KeptDefinition).decode(unseal(content, FORMAT))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} can't be read ({error}); take that of another replica") from error
    if kept.format > FORMAT:
        raise UnsupportedFormat(f"{path} has format {kept.format}, this replitree knows {FORMAT}; upgrade it")
    return decode_definition(bytes(kept.metadata), bytes(kept.columns))
