"""Located: where Spark's JVM opens the files of a snapshot's parts.

==============================  ==========================================================================================
a replica's disk, and the       by their paths
executor is this machine's JVM
a replica's disk, a cluster     on the executor's own disk, or from the replicas (`replitree.spark.store.remote`)
a store that is a folder here   by the paths of the objects
a bucket                        small parts by the paths of copies (`replitree.spark.store.copies`), others at this process's
                                gateway (`replitree.spark.store.gateway`), which verifies them; with S3A where `S3A_OPTION`
                                is set, and S3A opens one of the objects
anywhere else                   by the paths of copies, which this process brings first: from the store, or a replica
==============================  ==========================================================================================

Guarantees: every byte that is read was compared with a checksum, except with S3A.  The chosen client has opened an object
of this snapshot, or its store was proved to be the table's.  Copies stay as long as a frame that was given to
`SnapshotPlace.read_by` can be read.  No path, URL or option but the gateway's has a secret: S3A has credentials of its own.

Absent on purpose: parts in an object store, for executors of a cluster, except with S3A.  Tasks can read them through
``format("replitree")``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from replitree.client.read.snapshot import PartSource, Snapshot, SnapshotPart
from replitree.client.transport.stored import StoredParts
from replitree.errors import BadInput
from replitree.spark.session.actions import watch
from replitree.spark.session.tasks import is_connect
from replitree.spark.store.copies import Claim, frame_bytes_max, these_copies
from replitree.spark.store.gateway import this_gateway
from replitree.spark.store.remote import has_file_system, remote_files, remote_options
from replitree.storage.objects.location import AMAZON
from replitree.storage.parts.manifest import FileEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S3A_OPTION = "spark.replitree.s3a"
"""Setting of a session: `true` reads large objects with S3A.  S3A compares no checksums of ours: of what it reads, only page
data is verified, by the checksums in Parquet's pages; a page header or a footer that has changed may show wrong rows."""

VERIFY_PAGES = {"parquet.page.verify-checksum.enabled": "true"}
"""Option of a reader whose client compares no checksums of ours; all others do before Parquet has a byte."""

_LOOKING = {
    "fs.s3a.bucket.{bucket}.attempts.maximum": "1",
    "fs.s3a.bucket.{bucket}.retry.limit": "1",
    "fs.s3a.bucket.{bucket}.retry.interval": "100ms",
    "fs.s3a.bucket.{bucket}.connection.establish.timeout": "2000",
    "fs.s3a.bucket.{bucket}.connection.timeout": "2000",
}
"""How S3A looks whether it works: by itself it tries for minutes, as where the server does not speak TLS."""


class SnapshotPlace(Protocol):
    """Where parts of a snapshot are opened."""

    @property
    def options(self) -> Mapping[str, str]:
        """Options of a reader that opens them."""

    def paths(self, parts: Sequence[SnapshotPart]) -> list[str]:
        """Return paths or URLs, of files or of folders with these files only.

        Raises
        ------
        BadInput
            Executors may run on other machines, where they are not.
        SnapshotExpired
            A part is gone; `LeaseLost` when the snapshot had a lease and lost it.
        """

    def read_by(self, frame: DataFrame) -> None:
        """Note that a frame of one relation reads what `paths` gave."""


def located(snapshot: Snapshot, spark: SparkSession, parts: Sequence[SnapshotPart]) -> SnapshotPlace:
    """Find out where parts of a snapshot are opened.  Raises as `SnapshotPlace.paths`."""
    snapshot.check()
    files, stored, shared = _LocalFiles(snapshot, spark), snapshot.stored, _divided(parts)[0]
    if not is_local(spark) and all(part.manifest.share_id is None for part in parts) and has_file_system(spark):
        return _RemoteFiles(snapshot)
    if not shared or stored is None or stored.is_folder:
        return files
    is_read_here = is_local(spark) and stored.problem(shared[0].manifest) is None
    # The smallest parts as copies: at the gateway the JVM asks several times for each file that it opens.
    claim = these_copies().claim(shared, frame_bytes_max(spark) if is_read_here else 0)
    if is_s3a_chosen(spark) and any(part not in claim for part in shared) and _has_s3a(spark, stored, shared[0]):
        return _InBucket(files, stored, claim, _S3A())
    return _InBucket(files, stored, claim, _StoreGateway(snapshot.source)) if is_read_here else files


@dataclass(frozen=True, slots=True)
class _LocalFiles:
    """Files of this machine; what is not here is brought."""

    snapshot: Snapshot
    spark: SparkSession

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    def paths(self, parts: Sequence[SnapshotPart]) -> list[str]:
        if not parts:
            return []
        check_local(self.spark, self.snapshot.definition.name)
        files = self.snapshot.sound_files(parts)
        watch(self.spark, self.snapshot.source, files)
        return [str(file.path) for file in files]

    def read_by(self, frame: DataFrame) -> None:
        """Keep everything until the process ends."""


@dataclass(frozen=True, slots=True)
class _RemoteFiles:
    """Files that each executor finds on its own disk, or asks the replicas for."""

    snapshot: Snapshot

    @property
    def options(self) -> Mapping[str, str]:
        return remote_options(self.snapshot)

    def paths(self, parts: Sequence[SnapshotPart]) -> list[str]:
        return [url for _, url, _ in remote_files(self.snapshot, parts)]

    def read_by(self, frame: DataFrame) -> None:
        """Keep nothing: there are no copies."""


class _Client(Protocol):
    """The JVM's client for objects of a bucket."""

    @property
    def options(self) -> Mapping[str, str]:
        """Options of a reader that uses it."""

    def urls(self, stored: StoredParts, parts: Sequence[SnapshotPart]) -> list[str]:
        """Return URLs of the files of parts, or of folders with these files only."""


@dataclass(frozen=True, slots=True)
class _InBucket:
    """Objects of a bucket, as copies or with a client, and what is not in the bucket."""

    others: _LocalFiles
    stored: StoredParts
    claim: Claim
    client: _Client

    @property
    def options(self) -> Mapping[str, str]:
        return self.client.options

    def paths(self, parts: Sequence[SnapshotPart]) -> list[str]:
        shared, others = _divided(parts)
        copies = self.claim.bring(self.others.snapshot, [part for part in shared if part in self.claim])
        opened = [part for part in shared if copies is None or part not in self.claim]
        # Copies that found no room on the disk are read by the client, too.
        urls = self.client.urls(self.stored, opened) if opened else []
        return urls + (copies or []) + self.others.paths(others)

    def read_by(self, frame: DataFrame) -> None:
        self.claim.read_by(frame)


def _divided(parts: Sequence[SnapshotPart]) -> tuple[list[SnapshotPart], list[SnapshotPart]]:
    """Return the parts that are read in a store, and the others: those on disks, and those that are lacking."""
    return (
        [part for part in parts if part.manifest.share_id is not None and not part.lacking],
        [part for part in parts if part.manifest.share_id is None or part.lacking],
    )


# --- clients ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoreGateway:
    """The gateway of this process; what is damaged in the store is read from a copy that the snapshot's source brings."""

    source: PartSource

    @property
    def options(self) -> Mapping[str, str]:
        return this_gateway().options

    def urls(self, stored: StoredParts, parts: Sequence[SnapshotPart]) -> list[str]:
        files = {
            f"{part.manifest.share_of(file)}-{file.name}": stored.objects.file(
                part.manifest, file, partial(self.source.good_copy, part)
            )
            for part in parts
            for file in part.manifest.files
        }
        return [this_gateway().publish(stored.objects.root, files)]


class _S3A:
    """Hadoop's own client, which the session has been set up with."""

    @property
    def options(self) -> Mapping[str, str]:
        return VERIFY_PAGES

    def urls(self, stored: StoredParts, parts: Sequence[SnapshotPart]) -> list[str]:
        return [_s3a(stored, part, file) for part in parts for file in part.manifest.files]


def is_s3a_chosen(spark: SparkSession) -> bool:
    """Tell whether a session reads large objects with S3A, which does not verify all that it reads.

    Raises
    ------
    BadInput
        The setting is neither true nor false.
    """
    text = (spark.conf.get(S3A_OPTION, "false") or "").strip().lower()
    if text not in ("true", "false"):
        raise BadInput(f"{S3A_OPTION} is true or false, not {text!r}")
    return text == "true"


def _s3a(stored: StoredParts, part: SnapshotPart, file: FileEntry) -> str:
    return f"s3a://{stored.location.place}/{stored.key(part.manifest, file)}"


def _has_s3a(spark: SparkSession, stored: StoredParts, part: SnapshotPart) -> bool:
    """Whether the session's S3A talks to the table's server and opens an object of a part; no other kind of store has it."""
    if stored.location.scheme != AMAZON:
        return False
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no other way
    bucket = stored.location.place

    def setting(name: str) -> str:
        return conf.get(f"fs.s3a.bucket.{bucket}.{name}") or conf.get(f"fs.s3a.{name}") or ""

    endpoint = setting("endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = f"{'http' if setting('connection.ssl.enabled') == 'false' else 'https'}://{endpoint}"
    file = part.manifest.files[0]
    return same_server(stored.location.endpoint, endpoint) and s3a_opens(spark, _s3a(stored, part, file), file.bytes)


def same_server(ours: str, theirs: str) -> bool:
    """Whether two endpoints, each with its scheme, are of one server; an empty one is Amazon's.

    Examples
    --------
    >>> same_server("http://127.0.0.1:8333", "http://127.0.0.1:8333/"), same_server("", "https://s3.eu-west-1.amazonaws.com")
    (True, True)
    >>> same_server("http://127.0.0.1:8333", "https://127.0.0.1:8333")
    False
    """
    mine, other = ours.rstrip("/"), theirs.rstrip("/")
    return mine == other if mine else not other or other.endswith("amazonaws.com")


def s3a_opens(spark: SparkSession, url: str, size: int) -> bool:
    """Whether S3A, as the session has set it up, finds a file of this size at a URL; without an answer it gives up soon."""
    context = spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 - as above
    try:
        conf = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())  # noqa: SLF001
        for name, value in _LOOKING.items():
            conf.set(name.format(bucket=urlsplit(url).netloc), value)
        path = jvm.org.apache.hadoop.fs.Path(url)
        # A new one: Hadoop's cache would give the session's own, with the session's patience.
        system = jvm.org.apache.hadoop.fs.FileSystem.newInstance(path.toUri(), conf)
        try:
            return bool(system.getFileStatus(path).getLen() == size)
        finally:
            system.close()
    # PySpark raises its own error for exceptions that it knows, as of a bad setting.
    except (Py4JError, PySparkException):
        return False


# --- executors ----------------------------------------------------------------------------------------------------------------


def check_local(spark: SparkSession, table: str) -> None:
    """Do nothing when Spark's executors see the files of this machine.

    Raises
    ------
    BadInput
        They may run elsewhere.
    """
    if not is_local(spark):
        raise BadInput(
            "Spark's executors are processes of their own, and may not see these files; each task finds or fetches its own, and"
            f' verifies it, with spark.read.format("replitree").load("{table}"). S3A, which verifies less, also reads objects'
            f" of a bucket there, if {S3A_OPTION} is true (docs/shared-storage-reading.md)"
        )


def is_local(spark: SparkSession) -> bool:
    """Tell whether the driver's own JVM runs all tasks, on this machine, so that they see its files."""
    return is_local_master(spark.conf.get("spark.master", None) or "")


def is_own_local(spark: SparkSession) -> bool:
    """Tell whether all tasks run in a JVM of this process; a server of Spark Connect may be on another machine."""
    return not is_connect(spark) and is_local(spark)


def is_local_master(master: str) -> bool:
    """Tell whether a master, named by its URL, lets the driver's JVM run all tasks.

    Every other master has executors, which are asked when they read and write: their machine, their user and the file systems
    that they see can't be told by its URL.

    >>> is_local_master("local"), is_local_master("local[2]"), is_local_master("local-cluster[2,1,1024]")
    (True, True, False)
    """
    return master == "local" or master.startswith("local[")


__all__ = [
    "SnapshotPlace",
    "check_local",
    "is_local",
    "is_local_master",
    "is_own_local",
    "located",
    "s3a_opens",
    "same_server",
]
