"""Located: where Spark's JVM opens the files of a snapshot's parts.

==============================  ==========================================================================================
a replica's disk, this machine  by their paths
a store that is a folder here   by the paths of the objects
a bucket                        with S3A, if the session has it and opens one of the objects; else small parts by the paths
                                of copies (`replitree.spark.copies`), others at this process's gateway
                                (`replitree.spark.gateway`)
anywhere else                   by the paths of copies, which this process brings first: from the store, or a replica
==============================  ==========================================================================================

Guarantees: whoever is chosen has opened an object of this snapshot, or its store was proved to be the table's.  What is
brought stays as long as a frame that `Place.read_by` was told of can be read.  No
path, URL or option but the gateway's has a secret: S3A has credentials of its own.

Absent on purpose: executors on other machines, except with S3A.  Their tasks can read through ``format("replitree")``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types

from replitree.client.snapshot import Snapshot, SnapshotPart
from replitree.client.stored import StoredParts
from replitree.errors import BadInput
from replitree.spark.copies import Claim, frame_bytes_max, these_copies
from replitree.spark.gateway import this_gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Place(Protocol):
    """Where parts of a snapshot are opened."""

    @property
    def options(self) -> Mapping[str, str]:
        """What a reader must be told to open them."""

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


def located(snapshot: Snapshot, spark: SparkSession, parts: Sequence[SnapshotPart]) -> Place:
    """Find out where parts of a snapshot are opened.  Raises as `Place.paths`."""
    snapshot.check()
    files, stored = _Files(snapshot, spark), snapshot.stored
    shared = next((part for part in parts if part.manifest.share_id is not None), None)
    if shared is None or stored is None or stored.is_folder:
        return files
    if _has_s3a(spark, stored, shared):
        return _S3A(files, stored)
    if is_local(spark) and stored.problem(shared.manifest) is None:
        return _InBucket(files, stored, _copied(spark, parts))
    return files


@dataclass(frozen=True, slots=True)
class _Files:
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
        folders = self.snapshot.folders(parts)
        return [
            str(folder / file.name) for part, folder in zip(parts, folders, strict=True) for file in part.manifest.files
        ]

    def read_by(self, frame: DataFrame) -> None:
        """Nothing is let go before the process ends."""


@dataclass(frozen=True, slots=True)
class _InBucket:
    """Objects of a bucket, as copies or at this process's gateway, and what is not in the bucket."""

    others: _Files
    stored: StoredParts
    claim: Claim

    @property
    def options(self) -> Mapping[str, str]:
        return this_gateway().options

    def paths(self, parts: Sequence[SnapshotPart]) -> list[str]:
        shared, others = _divided(parts)
        copies = self.claim.bring(self.others.snapshot, [part for part in shared if part in self.claim])
        served = [part.manifest for part in shared if copies is None or part not in self.claim]
        folders = [this_gateway().publish(self.stored.objects, served)] if served else []
        return folders + (copies or []) + self.others.paths(others)

    def read_by(self, frame: DataFrame) -> None:
        self.claim.read_by(frame)


def _copied(spark: SparkSession, parts: Sequence[SnapshotPart]) -> Claim:
    return these_copies().claim(_divided(parts)[0], frame_bytes_max(spark))


@dataclass(frozen=True, slots=True)
class _S3A:
    """Objects of a bucket as S3A opens them, and what is not in the bucket."""

    others: _Files
    stored: StoredParts

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    def paths(self, parts: Sequence[SnapshotPart]) -> list[str]:
        shared, others = _divided(parts)
        return [url for part in shared for url in _s3a(self.stored, part)] + self.others.paths(others)

    def read_by(self, frame: DataFrame) -> None:
        """Nothing was brought for it, or nothing that is let go."""


def _divided(parts: Sequence[SnapshotPart]) -> tuple[list[SnapshotPart], list[SnapshotPart]]:
    """Return the parts that are in a store, and the others."""
    return (
        [part for part in parts if part.manifest.share_id is not None],
        [part for part in parts if part.manifest.share_id is None],
    )


# --- S3A ----------------------------------------------------------------------------------------------------------------------


def _s3a(stored: StoredParts, part: SnapshotPart) -> list[str]:
    return [f"s3a://{stored.location.place}/{stored.key(part.manifest, file)}" for file in part.manifest.files]


def _has_s3a(spark: SparkSession, stored: StoredParts, part: SnapshotPart) -> bool:
    """Whether the session's S3A talks to the table's server and opens an object of a part."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no other way
    bucket = stored.location.place
    endpoint = conf.get(f"fs.s3a.bucket.{bucket}.endpoint") or conf.get("fs.s3a.endpoint") or ""
    if not same_server(stored.location.endpoint, endpoint):
        return False
    return jvm_opens(spark, _s3a(stored, part)[0], part.manifest.files[0].bytes)


def same_server(ours: str, theirs: str) -> bool:
    """Whether two endpoints are of one server; an empty one is Amazon's.

    Examples
    --------
    >>> same_server("http://127.0.0.1:8333", "127.0.0.1:8333/"), same_server("", "https://s3.eu-west-1.amazonaws.com")
    (True, True)
    >>> same_server("http://127.0.0.1:8333", "")
    False
    """
    mine, other = (each.partition("://")[2] or each for each in (ours.rstrip("/"), theirs.rstrip("/")))
    return mine == other if mine else not other or other.endswith("amazonaws.com")


def jvm_opens(spark: SparkSession, url: str, size: int) -> bool:
    """Whether the JVM, as the session has set it up, finds a file of this size at a URL."""
    context = spark.sparkContext
    try:
        path = context._jvm.org.apache.hadoop.fs.Path(url)  # type: ignore[union-attr]  # noqa: SLF001 - as above
        system = path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
        found: int = system.getFileStatus(path).getLen()
    except Py4JError:
        return False
    return found == size


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
            "Spark's executors may run on other machines and not see these files; each task finds or fetches its own with"
            f' spark.read.format("replitree").load("{table}")'
        )


def is_local(spark: SparkSession) -> bool:
    """Tell whether Spark's executors run on this machine, so that they see its files."""
    master = spark.conf.get("spark.master", None) or ""
    return master.startswith(("local", "spark://127.0.0.1", "spark://localhost"))


__all__ = ["Place", "check_local", "is_local", "jvm_opens", "located", "same_server"]
