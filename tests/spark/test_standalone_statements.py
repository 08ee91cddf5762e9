"""Statements that change rows, where executors can't open the replicas' folders: of tables on disks, and in an object store."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types

from replitree.client.cluster import LocalCluster
from replitree.client.read.part_cache import PartCache
from replitree.client.table import Table
from replitree.spark.session.catalog import CATALOG
from replitree.tls import TlsFiles
from replitree_bench.kit.standalone import StandaloneSpark
from tests.certificates import Authority
from tests.spark.conftest import uploads_left
from tests.spark.deaths import dying
from tests.spark.event_logs import told
from tests.spark.standalone import created, made_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.system,
    # PySpark says so when a function in Python is made.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Cannot infer the eval type from type hints:UserWarning"),
]

STATEMENTS: dict[str, Callable[[int, int, str], tuple[int, int, str] | None]] = {
    "update {t} set s = 'new', g = 7 where k < (select count(*) from {t} where k < 5)": lambda k, g, s: (
        (k, 7, "new") if k < 5 else (k, g, s)
    ),
    "delete from {t} where k in (select id from range(10) where id % 2 = 1)": lambda k, g, s: (
        None if k < 10 and k % 2 else (k, g, s)
    ),
    "merge into {t} using (select id from range(25, 35)) on k = id when matched and id % 2 = 0 then delete when matched then"
    " update set s = 'merged' when not matched then insert (k, g, s) values (id, 8, 'put')": lambda k, g, s: (
        (k, g, s) if k < 25 else None if k % 2 == 0 else (k, g, "merged")
    ),
}
"""Statements that rewrite rows of whole parts, and what each makes of a row that is there."""


def check_statements(spark: SparkSession, replicas: LocalCluster, target: Table, statements: Sequence[str]) -> None:
    """Run statements one after the other, and compare the rows after each."""
    target.insert(made_rows(spark, 30))
    wanted = [tuple(row.values()) for row in target.to_arrow().to_pylist()]
    for statement in statements:
        spark.sql(statement.format(t=f"replitree.default.{target.name}")).collect()
        wanted = [row for each in wanted if (row := STATEMENTS[statement](*each)) is not None]
        wanted += [(k, 8, "put") for k in range(30, 35)] if "merge" in statement else []
        found = target.to_arrow(level="linearizable").to_pylist()
        assert sorted(tuple(row.values()) for row in found) == sorted(wanted), statement
        assert uploads_left(replicas, target) == []
    assert told(spark, [target.http._token, f"ticket.{target.name}."]) == []  # noqa: SLF001 - nothing else has it


def test_statements_rewrite_rows_where_executors_do_not_see_the_folder(
    elsewhere: SparkSession, replicas: LocalCluster, target: Table
) -> None:
    check_statements(elsewhere, replicas, target, list(STATEMENTS))


@pytest.fixture(params=["hidden", pytest.param("seen", marks=pytest.mark.nightly)])
def stored(
    request: pytest.FixtureRequest, hidden: Path, standalone: StandaloneSpark, replicas: LocalCluster
) -> Iterator[Table]:
    """A table in an object store that executors do not reach, or do."""
    store = {"hidden": hidden, "seen": standalone.folder}[request.param] / "objects"
    store.mkdir(exist_ok=True)
    with created(replicas, store) as made:
        yield made


def lies_in_store(table: Table) -> list[bool]:
    return [part.manifest.share_id is not None for part in table.snapshot(level="linearizable").parts]


def test_a_statement_rewrites_rows_of_a_table_in_a_store(
    elsewhere: SparkSession, replicas: LocalCluster, stored: Table
) -> None:
    (merge,) = (each for each in STATEMENTS if each.startswith("merge"))
    check_statements(elsewhere, replicas, stored, [merge])
    assert lies_in_store(stored) == [True] * 4, "of g 0, 1 and 2, and of the new rows"


@pytest.mark.nightly
def test_all_statements_rewrite_rows_of_a_table_in_a_store(
    elsewhere: SparkSession, replicas: LocalCluster, stored: Table
) -> None:
    check_statements(elsewhere, replicas, stored, list(STATEMENTS))
    assert all(lies_in_store(stored))


# --- TLS ---


def test_executors_read_and_rewrite_rows_by_mutual_tls(
    elsewhere: SparkSession, hidden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Authority(tmp_path).issue()
    settings = {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key}
    mutual = {**settings, "tls_clients": "with_certificate"}
    with LocalCluster(hidden / "secure", 2, durable=False, settings=mutual) as secure, created(secure) as table:
        assert secure.url.endswith("?tls"), "its ZooKeeper wants certificates, too"
        table.insert(made_rows(elsewhere, 30), quorum=2)
        elsewhere.conf.set("spark.sql.catalog.secure", elsewhere.conf.get(CATALOG) or "")
        elsewhere.conf.set("spark.sql.catalog.secure.url", str(secure.folder))
        name = f"secure.default.{table.name}"
        elsewhere.sql(f"update {name} set s = 'new' where k < (select count(*) from {name} where k < 5)").collect()
        wanted = [(k, k % 3) for k in range(5)]
        assert sorted(map(tuple, elsewhere.sql(f"select k, g from {name} where s = 'new'").collect())) == wanted
        assert table.to_df(elsewhere, level="linearizable").where("s = 'new'").count() == 5
        assert told(elsewhere, [table.http._token, f"ticket.{table.name}."]) == []  # noqa: SLF001 - nothing else has it

        access = PartCache.access
        for wrong, why in (
            (TlsFiles(Authority(tmp_path, "other").file), "PKIX path building failed"),
            (TlsFiles(files.ca, files.certificate, files.ca), f"does not contain valid private key: {files.ca}"),
        ):
            monkeypatch.setattr(PartCache, "access", lambda cache, wrong=wrong: access(cache)._replace(tls=wrong))
            with pytest.raises(Py4JJavaError, match=why):
                table.to_df(elsewhere).collect()


# --- faults ---

DEADLY = {
    "update": "update {t} set s = dies(k) where k % 4 = 0",
    "merge": "merge into {t} using (select id from range(0, 60, 4)) on k = id when matched then update set s = dies(k)",
}
"""Statements whose first task dies, and that change every fourth row."""


def rewrite_with_a_death(spark: SparkSession, table: Table, statement: str, die: Callable[[], None]) -> None:
    """Fill a table, and run a statement of `DEADLY`; the task that comes first dies."""

    def dies(key: int) -> str:
        die()
        return f"new {key}"

    table.insert(made_rows(spark, 60))
    spark.udf.register("dies", dies)
    spark.sql(statement.format(t=f"replitree.default.{table.name}")).collect()
    found = table.to_arrow(level="linearizable").sort_by("k").to_pylist()
    assert [row["k"] for row in found] == list(range(60))
    assert [row["k"] for row in found if row["s"] == f"new {row['k']}"] == list(range(0, 60, 4))


@pytest.mark.parametrize("name", DEADLY)
@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_one_is_killed_while_a_statement_rewrites_rows(
    elsewhere: SparkSession,
    standalone: StandaloneSpark,
    replicas: LocalCluster,
    target: Table,
    name: str,
    victim: str,
) -> None:
    marker = standalone.folder / f"statement-{name}-{victim}"
    rewrite_with_a_death(elsewhere, target, DEADLY[name], dying(marker, of_worker=victim == "worker"))
    assert marker.exists()
    assert standalone.replace_the_killed() == (victim == "worker")
    assert uploads_left(replicas, target) == []


@pytest.mark.nightly
def test_an_executor_is_killed_while_a_statement_rewrites_rows_in_a_store(
    elsewhere: SparkSession, standalone: StandaloneSpark, replicas: LocalCluster, stored: Table
) -> None:
    for name, statement in DEADLY.items():
        marker = standalone.folder / f"stored-{name}-{secrets.token_hex(4)}"
        rewrite_with_a_death(elsewhere, stored, statement, dying(marker))
        assert marker.exists()
        assert all(lies_in_store(stored))
        assert uploads_left(replicas, stored) == []
        stored.truncate()
