"""What a table has in the tests' bucket, on the replicas' disks, and what coordination says of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children
from replitree.protocol.core.layout import TablePlace
from replitree.storage.objects.opening import open_store
from tests.coordination.waiting import patient_session
from tests.shared.stores import credentials as keys_of_the_store  # otherwise this process has none


class Stored:
    """What the bucket and coordination have of a table."""

    def __init__(self, cluster: LocalCluster, table: Table) -> None:
        with keys_of_the_store():
            self._store = open_store(table.definition.store_url)
        self._root = f"tables/{table.definition.table_id}"
        self._session = patient_session(cluster.access.url)
        self._place = TablePlace(layout.table_path(self._session.url.root, table.name))

    def objects(self) -> set[str]:
        """Keys of all objects, without what they have in common."""
        return {found.key.removeprefix(f"{self._root}/") for found in self._store.list(self._root)}

    def shares(self) -> set[str]:
        """The shares that have objects."""
        return {key.partition("/")[0] for key in self.objects()}

    def attempts(self) -> tuple[str, ...]:
        return self._session.perform(Children(layout.all_writing(self._place))) or ()

    def owned(self) -> set[str]:
        return set(self._session.perform(Children(layout.shares(self._place))) or ())

    def put_late(self, share: str) -> None:
        self._store.create(f"{self._root}/{share}/data-77.parquet", b"late")

    def close(self) -> None:
        self._session.close()


def copies(cluster: LocalCluster, table: Table) -> list[Path]:
    """Data files that replicas have on their disks."""
    folders = [cluster.folder / name / "data" / "tables" / table.definition.folder_name for name in cluster.names]
    walked = (found for folder in folders for found in os.walk(folder))  # folders may go meanwhile
    return [Path(place) / name for place, _, names in walked for name in names if fnmatch(name, "data-*.parquet")]


@contextmanager
def without_credentials(credentials: Path) -> Iterator[None]:
    """Let Spark's workers have none meanwhile."""
    hidden = credentials.rename(credentials.with_name("hidden"))
    try:
        yield
    finally:
        hidden.rename(credentials)


@contextmanager
def closed_gate(folder: Path) -> Iterator[Path]:
    """Give a pipe whose readers wait until this is over."""
    path = folder / "gate"
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)
    try:
        yield path
    finally:
        os.close(held)


def let_uploads_age(cluster: LocalCluster, table: Table) -> None:
    """Make the uploads of a table look as if their writers had sent nothing for years."""
    for name in cluster.names:
        folder = cluster.folder / name / "data" / "tables" / table.definition.folder_name / "uploads"
        for path in folder.rglob("*"):
            os.utime(path, (1, 1))
