"""What Spark's JVM sends to its planner: the catalog's settings, then requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from replitree.client.read.table_log import EPOCH
from replitree.errors import BadInput


class CatalogSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The catalog's settings: the cluster, the file with its token, and Spark's master."""

    url: str = ""
    token_file: str = ""
    master: str = ""


class PlannerRequest(msgspec.Struct, frozen=True):
    """One request; what it needs depends on `do`."""

    id: int
    do: str
    table: str = ""
    version: str = ""
    timestamp: str = ""
    options: dict[str, str] = {}
    handle: str = ""
    known: str = ""
    where: str = ""
    columns: str = ""
    defaults: dict[str, str] = {}
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    sql: str = ""
    rewrite: str = ""
    statement: str = ""
    parts: tuple[str, ...] = ()
    written: tuple[tuple[str, str], ...] = ()
    isolation: str = ""
    told: tuple[str, ...] = ()
    through: str | None = None
    names: tuple[str, ...] = ()
    values: tuple[str | None, ...] = ()
    partitions: tuple[tuple[str | None, ...], ...] = ()
    procedure: str = ""
    arguments: tuple[Any, ...] = ()
    ends: tuple[str | int | None, str | int | None, bool, bool] = (None, None, True, True)
    mode: str = ""
    computes: bool = False

    @property
    def read_options(self) -> dict[str, str]:
        """The options of the read, as ``format("replitree")`` names them."""
        named = dict(self.options)
        if self.version:
            named["asof"] = self.version
        if self.timestamp:
            try:
                named["timestampasof"] = (EPOCH + timedelta(microseconds=int(self.timestamp))).isoformat()
            except OverflowError as error:
                raise BadInput("TIMESTAMP AS OF takes a time of the years 1 to 9999") from error
        return named


__all__ = ["CatalogSettings", "PlannerRequest"]
