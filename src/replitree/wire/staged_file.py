"""A data file that an attempt of a Spark task has sent to the replica of an upload, before it is known which attempts count."""

from __future__ import annotations

import msgspec


class StagedFile(msgspec.Struct, frozen=True):
    """One file.

    Attributes
    ----------
    attempt, partition, file
        Where it is: the name of the attempt, the partition, and its name there.
    name
        Its name in the upload's part.
    """

    attempt: str
    partition: str
    file: str
    name: str
