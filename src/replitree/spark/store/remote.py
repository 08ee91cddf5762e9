"""Remote: data files of replicas' disks as files that Spark's JVM opens on any machine.

The jar has a file system of Hadoop, ``replitree://`` (`scala/PartFileSystem.scala`).  A task opens a file on its own disk when
it is there, and otherwise asks the replicas for the ranges that Parquet's reader wants.  So nothing has to be known of the
executors when a frame is made, and executors that come later read as well.

Guarantees:

* Every byte that is read was compared with a block checksum of the file that the manifest names.
* A replica that does not answer, or has other bytes, is passed over: the next one goes on where it stopped.
* A URL names the table, the part, the file, its size and its checksum.  The addresses and a ticket that opens the files of this
  table only (`replitree.wire.ticket`) are among the options of the reader.  Spark hides the ticket's name wherever it shows
  options; neither plans nor logs have it, and no executor has the cluster's token.

Parts in an object store are read so by statements that rewrite rows only: a replica sends ranges of the objects.

Absent on purpose: other reads of parts in an object store.  Executors read these there, or through ``format("replitree")``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.tls import NO_FILES, TlsFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "replitree"
FILE_SYSTEM = "io.replitree.spark.PartFileSystem"


def has_file_system(spark: SparkSession) -> bool:
    """Tell whether the JVM of a session has the jar with the file system."""
    try:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way
        jvm.io.replitree.spark.Links.check()
    # Of a session of Spark Connect it is not known; Py4J takes a class that it does not find for a package.
    except (AttributeError, Py4JError, PySparkException, TypeError):
        return False
    return True


def remote_options(snapshot: Snapshot) -> dict[str, str]:
    """Return the options of a reader that opens what `remote_files` names.  They hold a ticket."""
    access = snapshot.source.access()
    options = {
        f"fs.{SCHEME}.impl": FILE_SYSTEM,
        # Hadoop's cache keeps a file system for all readers, with the options of the first one.
        f"fs.{SCHEME}.impl.disable.cache": "true",
        f"fs.{SCHEME}.addresses": ",".join(access.addresses),
        f"fs.{SCHEME}.secret": access.ticket,
        f"fs.{SCHEME}.tls": tls_option(access.tls),
    }
    folders = {Path(part.path).parent for part in snapshot.parts if part.path}
    return options | ({f"fs.{SCHEME}.folder": str(folders.pop())} if len(folders) == 1 else {})


def tls_option(files: TlsFiles) -> str:
    """Return the paths of authorities, certificate and key, a line for each, as the JVM takes them; "" when none is given.

    Parameters
    ----------
    files
        Of the client.
    """
    return "" if files == NO_FILES else f"{files.ca}\n{files.certificate}\n{files.key}"


def remote_files(snapshot: Snapshot, parts: Sequence[SnapshotPart]) -> Iterator[tuple[str, str, int]]:
    """Yield the part, the URL and the bytes of each data file of some parts."""
    table = quote(snapshot.definition.name)
    for part in parts:
        for file in part.manifest.files:
            url = f"{SCHEME}://parts/{table}/{part.part}/{file.bytes}-{file.checksum}/{file.name}"
            yield part.part, url, file.bytes


__all__ = ["FILE_SYSTEM", "SCHEME", "has_file_system", "remote_files", "remote_options", "tls_option"]
