"""The commands against real processes: `up`, and everything that a person does with what it started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.started import COMMAND, STOP_S_MAX, Cluster, rows, runs, start_up, stop
from tests.waiting import wait_for

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = start_up(tmp_path_factory.mktemp("up") / "data", "--replicas", "2")
    yield running
    stop(running)
    assert running.process.returncode == 0


@pytest.fixture
def table(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name: str = "t_" + request.node.name.removeprefix("test_")[:50]
    cluster.run("table", "create", name, "--schema", "id bigint not null, s string, at timestamp", "--order-by", "id")
    return name


def test_up_says_on_one_line_what_it_started(cluster: Cluster) -> None:
    assert cluster.ready["ready"] is True
    assert cluster.ready["url"].startswith("zk://127.0.0.1:")
    assert [replica["name"] for replica in cluster.ready["replicas"]] == ["r1", "r2"]
    assert all(runs(replica["pid"]) and ":" in replica["address"] for replica in cluster.ready["replicas"])


def test_second_up_in_the_same_folder_is_refused(cluster: Cluster) -> None:
    ran = subprocess.run([*COMMAND, "up", "--dir", str(cluster.folder)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "in use" in ran.stderr or "still run" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_table_from_creation_to_drop(cluster: Cluster) -> None:
    made = cluster.json(
        "table", "create", "life", "--schema", "id bigint not null, at date", "--order-by", "id",
        "--partition-by", "month(at),bucket(4,id)", "--set", "parts_max=50", "--set", "parts_delay=20",
    )  # fmt: skip
    assert made["partition_by"] == ["month(at)", "bucket(4,id)"]
    assert cluster.json("table", "show", "life") == made
    assert "life" in cluster.json("table", "list")["tables"]
    assert "id" in cluster.run("table", "show", "life")
    assert "exists already" in cluster.run("table", "create", "life", "--schema", "a int", status=1)
    assert "--yes" in cluster.run("table", "drop", "life", status=2)
    assert cluster.json("table", "drop", "life", "--yes") == {"dropped": "life"}
    assert "does not exist" in cluster.run("table", "show", "life", status=1)
    assert "life" not in cluster.json("table", "list")["tables"]


def test_table_takes_the_columns_of_a_file(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,x\n")
    made = cluster.json("table", "create", "alike", "--like", str(tmp_path / "a.csv"), "--order-by", "id")
    assert [column["name"] for column in made["columns"]] == ["id", "name"]
    assert cluster.json("insert", "alike", str(tmp_path / "a.csv"))["inserted"] == 1


def test_insert_of_every_format_and_again(cluster: Cluster, table: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,s\n1,x\n2,\n")
    (tmp_path / "b.jsonl").write_text('{"id": 3, "at": "2020-01-01T00:00:00Z"}\n')
    first = cluster.json("insert", table, str(tmp_path / "a.csv"))
    assert (first["inserted"], first["duplicates"], first["slices"]) == (2, 0, 1)
    again = cluster.json("insert", table, str(tmp_path / "a.csv"), "--replica", "r2")
    assert (again["inserted"], again["duplicates"], again["token"]) == (0, 2, first["token"])
    assert cluster.json("insert", table, str(tmp_path / "b.jsonl"))["inserted"] == 1
    assert cluster.json("insert", table, "-", "--format", "csv", stdin="id\n4\n")["inserted"] == 1
    (tmp_path / "a.csv").write_text("id,s\n1,x\n7,corrected\n")
    reused = ("insert", table, str(tmp_path / "a.csv"), "--token", first["token"])
    ran = cluster.commands.run(*reused, "--dir", str(cluster.folder))
    assert (ran.status, ran.err.count("\n")) == (0, 1)
    assert "was used before for other rows (or another order), so 2 rows of this file are not in the table" in ran.err
    assert "1 row inserted" in cluster.run("insert", table, "-", "--format", "jsonl", stdin='{"id": 5}\n')
    assert rows(cluster, table) == [5, 5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,colour\n1,red\n", "no column 'colour'"),
        ("id\nx\n", "'x' is not"),
        ("s\nno id\n", "'id'"),
        ("id,s\n,null id\n", "'id'"),
    ],
    ids=["unknown column", "wrong type", "missing column", "null"],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_inserted(
    cluster: Cluster, text: str, says: str, tmp_path: Path
) -> None:
    names = cluster.json("table", "list")["tables"]
    if "strict" not in names:
        cluster.run("table", "create", "strict", "--schema", "id bigint not null, s string")
    (tmp_path / "bad.csv").write_text(text)
    error = cluster.run("insert", "strict", str(tmp_path / "bad.csv"), status=2)
    assert says in error
    assert error.count("\n") == 1
    assert rows(cluster, "strict") == [0, 0]


def test_unknown_replica_and_unknown_table_are_named(cluster: Cluster, table: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    error = cluster.run("insert", table, str(tmp_path / "a.csv"), "--replica", "r9", status=2)
    assert "no replica 'r9'" in error
    assert "does not exist" in cluster.run("insert", "nowhere", str(tmp_path / "a.csv"), status=1)
    assert "does not exist" in cluster.run("status", "nowhere", status=1)


def test_interrupted_insert_is_repeated_without_duplicates(cluster: Cluster, table: str, tmp_path: Path) -> None:
    count = 1_000_000
    with (tmp_path / "many.csv").open("w") as file:
        file.write("id,s\n")
        file.writelines(f"{i},row\n" for i in range(count))
    command = [*COMMAND, "insert", table, str(tmp_path / "many.csv"), "--dir", str(cluster.folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: cluster.json("status", table)["tables"][0]["log_tail"] > 0)
    finally:
        process.kill()
        process.wait(STOP_S_MAX)
    done = cluster.json("insert", table, str(tmp_path / "many.csv"))
    assert done["duplicates"] >= 262_144
    assert done["inserted"] + done["duplicates"] == count
    assert rows(cluster, table) == [count, count]


def test_wrong_token_is_said(cluster: Cluster, table: str) -> None:
    wrong = {"REPLITREE_TOKEN": "not-the-token-of-this-cluster"}
    error = cluster.run("insert", table, "-", "--format", "csv", stdin="id\n1\n", status=1, environment=wrong)
    assert "token" in error


def test_status_shows_every_replica(cluster: Cluster, table: str) -> None:
    found = cluster.json("status", table)["tables"][0]
    assert [replica["name"] for replica in found["replicas"]] == ["r1", "r2"]
    assert {"log_pointer", "queue", "lag", "parts", "rows", "bytes", "active", "state"} <= set(found["replicas"][0])
    assert table in cluster.run("status")


def test_environment_names_the_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLITREE_DIR", str(cluster.folder))
    ran = subprocess.run([*COMMAND, "table", "list", "--json"], capture_output=True, text=True, check=True)
    assert "tables" in json.loads(ran.stdout)
    monkeypatch.delenv("REPLITREE_DIR")
    monkeypatch.setenv("REPLITREE_URL", cluster.ready["url"])
    monkeypatch.setenv("REPLITREE_TOKEN_FILE", str(cluster.folder / "token"))
    ran = subprocess.run([*COMMAND, "status", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["url"] == cluster.ready["url"]


def test_sql_sees_all_tables(cluster: Cluster, table: str) -> None:
    cluster.run("insert", table, "-", "--format", "csv", stdin="id,s,at\n1,x,2020-01-02\n2,,\n")
    assert rows(cluster, table) == [2, 2]
    found = cluster.json("sql", f"select id, s, at, count(*) over () as n, 1 as n from {table} order by id")
    assert [row["id"] for row in found["rows"]] == [1, 2]
    assert found["rows"][1] == {"id": 2, "s": None, "at": None, "n": 2, "n_2": 1}
    assert [column["name"] for column in found["columns"]] == ["id", "s", "at", "n", "n_2"]
    error = cluster.run("sql", "select nonsense from nowhere", status=2)
    assert "nowhere" in error
    assert "The tables are" in error
    assert table in error
    assert error.count("\n") == 1


def test_sql_reads_at_a_level_or_at_an_index(cluster: Cluster, table: str) -> None:
    for row in ("1,x", "2,y"):
        cluster.run("insert", table, "-", "--format", "csv", stdin=f"id,s\n{row}\n")
    query = f"select count(*) n from {table}"
    assert cluster.json("sql", query, "--level", "linearizable", "--timeout", "20")["rows"] == [{"n": 2}]
    assert cluster.json("sql", query, "--as-of", f"{table}=1")["rows"] == [{"n": 1}]
    error = cluster.run("sql", query, "--min-index", f"{table}=1000000", "--timeout", "0.2", status=4)
    assert "the read needs it up to 1000001" in error


NOT_NEEDED = (
    *("aiohttp", "numpy", "obstore", "pandas", "prometheus_client", "pyarrow", "pyspark", "sqlglot"),
    *("replitree.cli.cluster.up", "replitree.cli.demo", "replitree.cli.tables.insert", "replitree.cli.tablets.tablet"),
    *("replitree.client.admin", "replitree.client.cluster", "replitree.client.insert.insert"),
    *("replitree.client.read.final", "replitree.client.change.delete_final", "replitree.storage.sql.expression"),
    *("replitree.protocol.insert", "replitree.protocol.rescue", "replitree.storage.sql.predicate"),
    *("replitree.storage.rewrite", "replitree.storage.schema.types", "replitree.storage.shares"),
)
"""What takes long to import and no query of whole tables needs."""


def test_a_query_of_duckdb_and_a_list_of_tables_import_little(cluster: Cluster, table: str) -> None:
    cluster.run("insert", table, "-", "--format", "csv", stdin="id,s\n1,x\n2,y\n")
    program = (
        "import sys; from replitree.cli.main import main; status = main(); "
        f"print(status, [m for m in {NOT_NEEDED!r} if m in sys.modules], 'duckdb' in sys.modules)"
    )

    def run(*arguments: str) -> list[str]:
        command = [sys.executable, "-c", program, *arguments, "--dir", str(cluster.folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    query = f"select s, count(*) n from {table} group by all order by all"
    found = run("sql", query, "--engine", "duckdb", "--output", "csv")
    assert found == ["s,n", "x,1", "y,1", "0 [] True"]
    *names, imported = run("table", "list")
    assert table in names
    assert imported == "0 [] False"


def test_sql_shows_text_in_brackets_as_it_is(cluster: Cluster) -> None:
    out = cluster.run("sql", "select '[abc]' c, 'x [count(1)] y [/b]' z, ':smile:' w")
    for text in ("[abc]", "x [count(1)] y [/b]", ":smile:"):
        assert text in out
    assert "[plan_id=" in cluster.run("sql", "explain select count(*) from range(9)")


def test_sql_prints_csv(cluster: Cluster) -> None:
    out = cluster.run_alone("sql", "select 1 as a, 'b, c' as d, cast(null as int) as e", "--output", "csv")
    assert out == 'a,d,e\n1,"b, c",\n'


def test_changes_of_a_table(cluster: Cluster, table: str) -> None:
    for start in (0, 5):
        lines = "".join(f"{k},s{k}\n" for k in range(start, start + 5))
        cluster.run("insert", table, "-", "--format", "csv", stdin="id,s\n" + lines)
    deleted = cluster.json("sql", f"DELETE FROM {table} WHERE id >= 8")
    assert (deleted["applied"], deleted["finished"], deleted["removed"]) == (True, True, 2)
    wait_for(lambda: rows(cluster, table) == [8, 8], "the one that was not asked may still be at it")
    wait_for(lambda: cluster.json("table", "mutations", table)["mutations"][0]["finished"], "whoever is asked is done")
    assert cluster.json("optimize", table, "--final")["finished"] is True
    assert rows(cluster, table) == [8, 8]

    def partition() -> tuple[str, int, int]:
        (only,) = cluster.json("table", "partitions", table)["partitions"]
        return (only["partition"], only["parts"], only["rows"])

    wait_for(lambda: partition() == ("all", 1, 8), "it is merged where it is asked, too")
    assert cluster.json("table", "alter", table, "ADD COLUMN x int DEFAULT 7")["schema_version"] == 2
    assert rows(cluster, table) == [8, 8]
    asked = cluster.json("sql", f"select count(*) n, sum(x) x from {table}")
    assert asked["rows"] == [{"n": 8, "x": 56}]
    assert cluster.json("table", "freeze", table, "before", "--replica", "r1")["rows"] == 8
    assert [each["name"] for each in cluster.json("table", "frozen", table, "--replica", "r1")["frozen"]] == ["before"]
    assert cluster.json("table", "detach", table, "all")["removed"] == 1
    assert rows(cluster, table) == [0, 0]
    (part,) = cluster.json("table", "detached", table, "--replica", "r2")["detached"]
    assert cluster.json("table", "attach", table, part["name"], "--replica", "r2")["rows"] == 8
    assert rows(cluster, table) == [8, 8]
    (left,) = cluster.json("table", "detached", table, "--replica", "r1")["detached"]
    assert cluster.json("table", "remove-detached", table, left["name"], "--yes")["replica"] == "r1"
    assert cluster.json("table", "detached", table, "--replica", "r1")["detached"] == []
    assert cluster.json("table", "remove-frozen", table, "before", "--yes")["replica"] == "r1"
    assert "r1 has none" in cluster.run("table", "remove-frozen", table, "before", "--yes", status=2)
    assert "--yes" in cluster.run("table", "truncate", table, status=2)
    assert cluster.json("table", "truncate", table, "--yes")["removed"] == 1
    assert rows(cluster, table) == [0, 0]
    assert "mutation" in cluster.run("table", "kill-mutation", table, "0", status=2)
    assert "has no column 'nope'" in cluster.run("sql", f"DELETE FROM {table} WHERE nope = 1", status=2)


def test_a_table_moves_into_a_store(cluster: Cluster, table: str, tmp_path: Path) -> None:
    store = f"file://{tmp_path}"
    assert "units are s, m, h, d" in cluster.run("table", "storage", table, f"tiered({store}, older=abc)", status=2)
    moved = cluster.json("table", "storage", table, store)
    assert (moved["applied"], moved["finished"]) == (True, True)
    assert cluster.json("table", "storage", table)["storage"] == store


def test_file_takes_the_place_of_rows_and_brings_its_columns(cluster: Cluster, table: str) -> None:
    cluster.run("insert", table, "-", "--format", "csv", stdin="id,s\n1,a\n2,b\n")
    more = cluster.json("insert", table, "-", "--format", "csv", "--merge-schema", stdin="id,weight\n3,5\n")
    assert (more["inserted"], more["duplicates"]) == (1, 0)
    columns = {each["name"]: each["type"] for each in cluster.json("table", "show", table)["columns"]}
    assert columns == {"id": "int64", "s": "string", "at": "timestamp[us,UTC]", "weight": "int64"}
    block = max(each["block_max"] for each in cluster.json("table", "partitions", table)["partitions"])
    dropped = cluster.json("table", "drop-blocks", table, str(block), str(block), "--yes")
    assert (dropped["applied"], dropped["removed"]) in {(True, 1), (False, 0)}  # a merge may have come before
    options = ("--format", "csv", "--overwrite", "all")
    for _ in range(2):
        put = cluster.json("insert", table, "-", *options, stdin="id,s\n7,x\n8,y\n9,z\n")
        assert (put["inserted"], put["duplicates"], put["token"]) == (3, 0, None)
    assert rows(cluster, table) == [3, 3]
    once, again = (cluster.json("insert", table, "-", *options, "--token", "t", stdin="id\n1\n") for _ in range(2))
    assert (once["inserted"], again["inserted"], again["duplicates"]) == (1, 0, 1)
    assert rows(cluster, table) == [1, 1]
