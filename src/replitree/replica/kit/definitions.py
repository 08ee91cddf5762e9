"""The table's definition as this replica knows it; it follows the log.

The nodes are read again when an entry was pulled that changed them, when an older or newer schema version is asked for that is
not known, and when rows do not fit.  A newer definition than the log's entries so far does no harm: parts say with which
version they were written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from replitree.coordination.port import Coordination
from replitree.errors import (
    BadInput,
    CoordinationUnavailable,
    ReadOnly,
    StoreError,
    Unavailable,
    UnsupportedFormat,
)
from replitree.protocol.core import layout
from replitree.protocol.core.effects import GetMany, Version
from replitree.protocol.core.layout import TablePlace
from replitree.storage.disk.kept_definition import FILE, keep_definition, read_definition
from replitree.storage.schema.definition import TableDefinition, check_decoded, decode_unchecked


class Definitions:
    """One table's definition.

    Parameters
    ----------
    table, definition
        Where it lies, and what was read of it first.
    coordination
        Returns the present session.
    """

    def __init__(
        self, table: TablePlace, definition: TableDefinition, coordination: Callable[[], Coordination]
    ) -> None:
        self._table = table
        self._coordination = coordination
        self._lock = threading.Lock()
        self._wanted = definition.schema_version
        self._storage_version = Version(-1)
        self._changes_noted = self._changes_read = 0
        self._root: Path | None = None
        self.current = definition

    def keep_in(self, root: Path) -> None:
        """Keep the definition in a table's folder from now on, always written before anything uses it.

        Raises
        ------
        StoreError
            The disk is full or failing.
        """
        # From here on each definition is on disk before anything uses it.
        with self._lock:
            keep_definition(root, self.current)
            self._root = root

    def repair(self) -> tuple[tuple[str, str], ...]:
        """Read what the table's folder keeps; write it anew if it is damaged or gone, and return its place and the problem.

        Raises
        ------
        StoreError
            The disk is full or failing.
        """
        with self._lock:
            if self._root is None:
                return ()
            try:
                problem = "" if read_definition(self._root) is not None else "it is missing"
            except (StoreError, UnsupportedFormat, BadInput) as error:
                problem = str(error)
            keep_definition(self._root, self.current)
        return ((FILE, f"{problem}; it was written anew"),) if problem else ()

    def read(self) -> tuple[TableDefinition, Version]:
        """Read the definition and the version of the node `columns`.

        Raises
        ------
        Unavailable
            The table is being dropped.
        CoordinationUnavailable
            Coordination does not answer.
        ReadOnly
            The disk does not keep a newer definition; nothing was changed.
        """
        found, _, version = self.read_nodes()
        return found, version

    def read_nodes(self) -> tuple[TableDefinition, Version, Version]:
        """Read the definition and the versions of the nodes `metadata` and `columns`.  Raises as `read`."""
        paths = (layout.metadata(self._table), layout.columns(self._table))
        metadata, columns = self._coordination().perform(GetMany(paths)).nodes
        if metadata is None or columns is None:
            raise Unavailable(f"table {self._table.name} is being dropped")
        found = decode_unchecked(metadata.value, columns.value)
        if found != self.current:
            check_decoded(found)
        with self._lock:
            # Columns and storage change independently: each is taken over only where it is newer.
            newer = found if found.schema_version > self.current.schema_version else self.current
            is_moved = metadata.version > self._storage_version
            newer = newer.with_settings_of(found if is_moved else self.current)
            if newer != self.current:
                if self._root is not None:
                    try:
                        keep_definition(self._root, newer)
                    except StoreError as error:
                        raise ReadOnly(f"{error}; nothing was changed") from error
                self.current = newer
            if is_moved:
                self._storage_version = metadata.version
        return found, metadata.version, columns.version

    def refresh(self) -> TableDefinition:
        """Read the definition again and return it.  Raises as `read`."""
        self.read()
        return self.current

    def expect(self, version: int) -> None:
        """Note that this schema version is there; `catch_up` reads it."""
        with self._lock:
            self._wanted = max(self._wanted, version)

    def expect_storage(self) -> None:
        """Note that the storage policy, the retention or the Bloom filters were changed; `catch_up` reads it."""
        with self._lock:
            self._changes_noted += 1

    @property
    def is_behind(self) -> bool:
        """Whether a change of storage or retention was noted and is not read yet."""
        return self._changes_read < self._changes_noted

    def catch_up(self) -> None:
        """Read the definition again if a newer one is known to be there; what can't be read or kept now is read later."""
        # What is noted during the read is read once more.
        noted = self._changes_noted
        if self.current.schema_version < self._wanted or self._changes_read < noted:
            try:
                self.refresh()
            except (CoordinationUnavailable, ReadOnly):
                return
            with self._lock:
                self._changes_read = max(self._changes_read, noted)

    def at(self, version: int) -> TableDefinition:
        """Return the table with the columns of a schema version.

        Raises
        ------
        BadInput
            There is no such version.
        CoordinationUnavailable, ReadOnly
            It is newer than what is known here, and can't be read or kept now.
        """
        known = self.current
        if version > known.schema_version:
            known = self.refresh()
        return known.at(version)
