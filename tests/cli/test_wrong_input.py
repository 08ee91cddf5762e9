"""Wrong input of every kind: one clear line that says what to do, the right exit status, no traceback."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, Run
from tests.cli.powers import permissions_count

NOWHERE = "zk://127.0.0.1:1/replitree"
"""Nothing listens there."""

CASES: list[tuple[tuple[str, ...], str]] = [
    (("fly",), "No such command"),
    (("status", "--colour"), "No such option"),
    (("up", "--replicas", "none"), "--replicas': it must be a whole number"),
    (("up", "--replicas", "0"), "1 to 16"),
    (("up", "--zookeeper", "http://x"), "zk://"),
    (("up", "--zookeeper", "zk://127.0.0.1:port/x"), "port"),
    # names
    (("table", "create", "../x", "--schema", "a int"), "can't be a table's name"),
    (("table", "create", "1st", "--schema", "a int"), "can't be a table's name"),
    (("table", "show", "../../etc/passwd"), "can't be a table's name"),
    (("table", "drop", "a/b", "--yes"), "can't be a table's name"),
    (("insert", "../x", "rows.csv"), "can't be a table's name"),
    (("status", ".."), "can't be a table's name"),
    # definitions
    (("table", "create", "t"), "either --schema or --like"),
    (("table", "create", "t", "--schema", "a int", "--like", "rows.csv"), "either --schema or --like"),
    (("table", "create", "t", "--schema", "a nonsense"), "nonsense"),
    (("table", "create", "t", "--schema", "a int,"), "can't read"),
    (("table", "create", "t", "--schema", "a int, A string"), "two columns"),
    (("table", "create", "t", "--schema", "a int", "--order-by", "b"), "no column 'b'"),
    (("table", "create", "t", "--schema", "a int", "--partition-by", "month(a)"), "month"),
    (("table", "create", "t", "--schema", "a int", "--partition-by", "weekday(a)"), "not a partition transform"),
    (("table", "create", "t", "--schema", "a int", "--set", "parts_max"), "whole number"),
    (("table", "create", "t", "--schema", "a int", "--set", "colour=3"), "no setting 'colour'"),
    (("table", "create", "t", "--schema", "a int", "--set", "parts_max=0"), "above 0"),
    (("table", "create", "t", "--schema", "a int", "--set", f"parts_max={10**20}"), "at most 2,147,483,647"),
    (("table", "create", "t", "--like", "missing.parquet"), "no file"),
    (("table", "create", "t", "--like", "broken.parquet"), "can't be read as parquet"),
    (("table", "create", "t", "--schema", "a int", "--policy", "magic"), "not a merge policy"),
    (("table", "create", "t", "--schema", "a int", "--policy", "summing"), "order key"),
    # changes
    (("optimize", "../x"), "can't be a table's name"),
    (("optimize", "t", "--wait", "long"), "--wait': it must be a number"),
    (("optimize", "t", "--wait", "-1"), "--wait': it must be at least 0"),
    (("optimize", "t", "--wait", "1e9"), "--wait': it must be at least 0 and at most 3600"),
    (("optimize", "t", "--engine", "presto"), "--engine': 'presto' is not one of: replica, spark"),
    (("table", "alter", "../x", "DROP COLUMN a"), "can't be a table's name"),
    (("table", "alter", "t", "  "), "the statement is empty"),
    (("table", "alter", "t"), "STATEMENT"),
    (("table", "kill-mutation", "t", "-1"), "-1"),
    (("table", "partitions", ".."), "can't be a table's name"),
    (("table", "detach", "t"), "PARTITION"),
    (("table", "attach", "a/b", "x"), "can't be a table's name"),
    (("table", "frozen", "t"), "no cluster in replitree-data"),
    (("table", "truncate", "t", "--yes"), "no cluster in replitree-data"),
    (("sql", "DELETE FROM a.b WHERE k = 1"), "can't be a table's name"),
    (("sql", "UPDATE `../x` SET a = 1"), "can't be a table's name"),
    (("sql", "ALTER TABLE t DROP COLUMN a"), "no cluster in replitree-data"),
    (("sql", "DROP TABLE t"), "`replitree table drop` drops a table"),
    (("sql", "insert into t values (1)"), "`replitree insert TABLE FILE` inserts rows"),
    (("sql", "/* a comment */ CREATE TABLE t (a int)"), "`replitree table create` makes a table"),
    (("sql", "/* a comment */"), "query is empty"),
    (("sql", "selct 1"), "'selct' begins neither a query"),
    (("sql", "restore table t to version as of 1"), "`replitree table restore-to` makes"),
    (("sql", "OPTIMIZE t"), "`replitree optimize` merges"),
    (("sql", "vacuum t"), "replicas remove by themselves"),
    (("sql", "describe history t;"), "`replitree table log TABLE` shows that"),
    (("sql", "desc detail t"), "`replitree table show TABLE` shows that"),
    (("sql", "/* a */ (select 1)"), "no cluster in replitree-data"),
    (("up", "--dir", "rows.csv"), "rows.csv is not a folder"),
    (("up", "--dir", "rows.csv/below"), "rows.csv/below is not a folder"),
    # files
    (("insert", "t", "missing.csv"), "no file missing.csv"),
    (("insert", "t", "."), "is a folder"),
    (("insert", "t", "notes.txt"), "say --format"),
    (("insert", "t", "-"), "say --format"),
    (("insert", "t", "rows.csv", "--format", "xml"), "--format': 'xml' is not one of: csv, jsonl, parquet, arrow"),
    (("insert", "t", "rows.csv", "--overwrite", "some"), "--overwrite': 'some' is not one of: all, partitions"),
    # where the cluster is
    (("status",), "no cluster in replitree-data"),
    (("status", "--dir", "elsewhere"), "no cluster in elsewhere"),
    (("status", "--dir", "x", "--url", NOWHERE), "give one of them"),
    (("status", "--url", ""), "the cluster's name is empty"),
    (("status", "--dir", "strange"), "`replitree up --dir strange` writes it anew"),
    (("fsck", "t", "--dropped"), "leave t out"),
    (("status", "--url", "http://127.0.0.1:2181"), "zk://"),
    (("status", "--url", "zk://127.0.0.1:99999/x"), "port"),
    # servers, the page, checks, measurements, the demo
    (("ui", "--tablet", "nowhere"), "--tablet nowhere: no such folder"),
    (("ui", "--tablet", "ftp://host:1"), "--tablet"),
    (("ui", "--trace", "missing.json"), "can't read the trace missing.json (No such file or directory)"),
    (("ui", "--port", "65536"), "at most 65535"),
    (("server", "--config", "missing.toml"), "missing.toml"),
    (("blobd", "--dir", "d", "--token-file", "broken.parquet", "--listen", "here"), "HOST:PORT"),
    (("blobd", "--dir", "d"), "--token-file"),
    (("blobd", "--dir", "d", "--token-file", "token", "--listen", "127.0.0.1:65536"), "HOST:PORT"),
    (("blobd", "--dir", "d", "--token-file", "token", "--make", "../g"), "can't be a blob group's name"),
    (("blobd", "--dir", "d", "--token-file", "token", "--make", "g", "--number", "-1"), "at least 0"),
    (("tablet", "make", "g", "--name", ""), "can't be a blob group's name"),
    (("tablet", "serve", "register", "full"), "make a group with `replitree tablet make full`"),
    (("tablet", "serve", "register", "full", "--port", "65536"), "at most 65535"),
    (("verify", "simulate", "--seeds", "10"), "0:1000"),
    (("verify", "simulate", "--seeds", "9:3"), "the first number below"),
    (("verify", "explore", "perpetual_motion"), "no model 'perpetual_motion'"),
    (("verify", "explore", "insert_groups", "--mutant", "perfect"), "no mutant 'perfect'"),
    (("verify", "simulate", "--seeds", "0:2", "--mutant", "perfect"), "no mutant 'perfect'"),
    (("bench", "inserts", "--dir", "rows.csv"), "--dir rows.csv can't be used (File exists)"),
    (("bench", "read", "--store", "nonsense"), "'nonsense' is no URL of an object store"),
    (("bench", "steady", "--rate", "inf"), "at most 1000000"),
    (("bench", "inserts", "--peer", "abacus"), "--peer': 'abacus' is not one of: clickhouse"),
    (
        ("bench", "inserts", "--rounds", "0"),
        "--rounds': it must be at least 1 (replitree bench inserts --help shows how)",
    ),
    (("sql", "  "), "query is empty"),
    (("sql", "select 1", "--output", "xml"), "--output': 'xml' is not one of: table, vertical, csv, json"),
    (("demo", "--input", "missing.csv"), "no file missing.csv"),
    (("demo", "--input", "notes.txt"), "the demo reads"),
    (("demo", "--input", "empty.csv"), "is empty"),
    (("demo", "--git", "."), "no git repository"),
    (("demo", "--git", ".", "--input", "rows.csv"), "give one of them"),
    (("demo", "--dir", "full"), "is not empty"),
    (("demo", "--rows-min", "0"), "--rows-min"),
]


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Give the process its umask back: the commands of servers set it, and end before they serve."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    (tmp_path / "notes.txt").write_text("a\n1\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "cluster.json").write_text("{}")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()


@pytest.mark.parametrize(("arguments", "says"), CASES, ids=[" ".join(arguments) for arguments, _ in CASES])
def test_wrong_input_ends_with_one_clear_line(run: Run, arguments: tuple[str, ...], says: str) -> None:
    ran = run(*arguments)
    assert ran.status == 2
    assert ran.out == ""
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    assert "Value error" not in ran.err
    assert "Input should" not in ran.err


@pytest.mark.parametrize(("arguments", "says"), [case for case in CASES if case[0][0] in ("status", "insert", "table")])
def test_with_json_the_error_is_json_on_standard_error(run: Run, arguments: tuple[str, ...], says: str) -> None:
    ran = run(*arguments, "--json")
    assert ran.status == 2
    assert ran.out == ""
    assert set(ran.error) == {"error", "message"}
    assert says in ran.error["message"]


def test_a_query_that_is_no_text_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for errors in ("strict", "surrogateescape"):  # as the locale has it
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), "utf-8", errors))
        assert "standard input is no text in UTF-8" in one_line(run("sql", "-"), 2)


def test_a_member_says_what_is_wrong_with_its_secret_and_its_address(run: Run, tmp_path: Path) -> None:
    for_member = ("blobd", "--dir", "member", "--make", "g", "--token-file", "token")
    assert "name the file with the secret" in one_line(run(*for_member), 1)
    (tmp_path / "token").write_text("a-token-of-some-length")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = one_line(run(*for_member, "--listen", address), 2)
    assert f"can't listen on {address} (Address already in use): name another address" in said


def test_a_machine_says_that_its_port_is_taken(run: Run) -> None:
    assert run("tablet", "make", "group").status == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = one_line(run("tablet", "serve", "register", "group", "--port", str(port)), 2)
    assert f"can't listen on 127.0.0.1:{port} (Address already in use): name another port" in said


def test_a_file_without_permission_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").chmod(0)
    with permissions_count():
        ran = run("insert", "t", "rows.csv")
    assert ran.status == 2
    assert "can't read rows.csv: Permission denied" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("status",), ("table", "list"), ("insert", "t", "rows.csv"), ("sql", "select 1")]
)
def test_no_zookeeper_is_said_soon_and_is_no_usage_error(
    run: Run, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLITREE_TOKEN", "a-token-of-some-length")
    begin = time.monotonic()
    ran = run(*arguments, "--url", NOWHERE, "--json")
    assert ran.status == 1
    assert ran.error["error"] == "CoordinationUnavailable"
    assert "127.0.0.1:1" in ran.error["message"]
    assert time.monotonic() - begin < 30


@pytest.mark.slow
def test_a_password_in_the_url_is_never_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLITREE_TOKEN", "a-token-of-some-length")
    ran = run("status", "--url", "zk://operator:s3cret@127.0.0.1:1/replitree", "--debug")
    assert ran.status == 1
    assert "s3cret" not in ran.err + ran.out


def test_an_unexpected_error_is_one_line_and_debug_shows_where(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> str:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("importlib.metadata.version", broken)
    ran = run("version")
    assert ran.status == 1
    assert ran.err == "replitree: unexpected ZeroDivisionError: a defect (this is a bug; --debug shows where)\n"
    ran = run("version", "--debug")
    assert ran.status == 1
    assert "Traceback" in ran.err


def test_broken_pipe_to_a_server_is_not_taken_for_a_closed_output() -> None:
    code = (
        "import sys; from importlib import metadata; from replitree.cli.main import main\n"
        "def broken(_): raise BrokenPipeError(32, 'Broken pipe')\n"
        "metadata.version = broken; sys.exit(main(['version']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "Broken pipe" in ran.stderr


@pytest.mark.parametrize("arguments", [("version",), ("verify", "list"), ("version", "--json"), ("table", "--help")])
def test_output_that_can_not_be_written_is_an_error_of_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w", encoding="ascii") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "replitree.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "can't write the output or a temporary file: No space left on device" in ran.stderr


def test_folder_that_can_not_be_made_is_named(run: Run) -> None:
    ran = run("up", "--dir", "/proc/nowhere")
    assert (ran.status, ran.err) == (1, "replitree: /proc/nowhere: No such file or directory\n")


def test_a_server_says_why_it_can_not_begin(run: Run, tmp_path: Path) -> None:
    token, config = tmp_path / "token", tmp_path / "r1.toml"
    known = f'name = "r1"\nzookeeper = "{NOWHERE}"\ntoken_file = "{token}"\n'
    token.write_text("a-token-of-some-length")

    token.chmod(0o644)
    config.write_text(f'{known}data = "{tmp_path}/data"\n')
    assert "chmod 600" in one_line(run("server", "--config", "r1.toml"), 2)
    token.chmod(0o600)

    config.write_text(f'{known}data = "{tmp_path}/rows.csv"\n')
    assert f"can't use the data folder {tmp_path}/rows.csv" in one_line(run("server", "--config", "r1.toml"), 1)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(f'{known}data = "{tmp_path}/data"\nlisten = "{address}"\n')
        said = one_line(run("server", "--config", "r1.toml"), 2)
    assert f"can't listen on {address} (Address already in use)" in said


def one_line(ran: Ran, status: int) -> str:
    assert ran.status == status
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    return ran.err


def test_ctrl_c_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.metadata.version", interrupted)
    assert run("version").status == 130
