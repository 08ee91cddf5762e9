"""Engines on tables in object stores: read in the bucket, or through a replica, and only what a filter needs."""

from __future__ import annotations

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest

from tests.client.test_stored import SharedTable, in_bucket, in_folder, server

__all__ = ["in_bucket", "in_folder", "server"]


def read_everywhere(shared: SharedTable) -> None:
    """Every way to read has the rows of the filter."""
    scan = shared.table.scan()
    con = duckdb.connect()
    scan.to_duckdb(con, "t")
    assert con.sql("SELECT sum(k) FROM t WHERE k BETWEEN 12 AND 14").fetchall() == [(39,)]
    assert scan.to_polars(lazy=True).filter(pl.col("k").is_between(12, 14)).collect().height == 3
    assert scan.dataset().to_table(filter=(pc.field("k") >= 12) & (pc.field("k") <= 14)).num_rows == 3
    assert shared.table.scan(where="k between 12 and 14").to_pandas()["k"].tolist() == [12, 13, 14]
    assert scan.count() == 30


def test_a_store_that_is_a_folder_is_read_where_it_is(in_folder: SharedTable) -> None:
    read_everywhere(in_folder)
    assert in_folder.fetched() == 0
    files = in_folder.table.snapshot().files("k < 10", columns=["k"])
    assert (len(files), files.schema.names) == (1, ["k"])


def test_a_bucket_is_read_without_a_replica(in_bucket: SharedTable) -> None:
    read_everywhere(in_bucket)
    assert in_bucket.fetched() == 0


def test_a_bucket_without_credentials_is_read_through_a_replica(
    in_bucket: SharedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    read_everywhere(in_bucket)
    assert in_bucket.fetched() == 1, "the one part that the filter needs, once"
