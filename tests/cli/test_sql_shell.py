"""Several statements for `replitree sql`: a shell at a terminal, a file and a pipe, all without Spark."""

from __future__ import annotations

import io
import os
import pty
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import replitree.client
from replitree.cli.tables.sql_shell import run_script, run_shell, split
from replitree.errors import BadInput, ReplicaUnavailable
from tests.cli.conftest import Run
from tests.client.conftest import FakeCluster, cluster
from tests.client.test_snapshot import make

__all__ = ["cluster"]

URL = ("--url", "zk://nowhere:1/replitree", "--engine", "duckdb")


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("", [], ""),
        ("select 1", [], "select 1"),
        ("select 1;", ["select 1"], ""),
        ("select 1; select 2 ;\nselect", ["select 1", "select 2"], "select"),
        ("select ';', \"a;b\", `c;d`;", ["select ';', \"a;b\", `c;d`"], ""),
        (r"select 'it\'s; one';", [r"select 'it\'s; one'"], ""),
        ("select 'it''s; one';", ["select 'it''s; one'"], ""),
        ("-- first; second\nselect 1;", ["-- first; second\nselect 1"], ""),
        ("/* a; b */ select 1; /* open; ", ["/* a; b */ select 1"], "/* open;"),
        ("select 1 - 2 / 3;", ["select 1 - 2 / 3"], ""),
        (";; -- nothing\n;", [], ""),
        ("select 'open; select 2;", [], "select 'open; select 2;"),
    ],
)
def test_statements_end_with_a_semicolon_outside_of_quotes(text: str, statements: list[str], rest: str) -> None:
    assert split(text) == (statements, rest)


@given(st.text("ab;'\"`-/*\\\n ", max_size=30))
def test_a_text_is_cut_in_the_same_way_whether_it_comes_at_once_or_in_lines(text: str) -> None:
    found, typed = list[str](), ""
    for line in text.split("\n"):
        more, typed = split(f"{typed}\n{line}" if typed else line)
        found += more
    statements, rest = split(text)
    assert [each.split() for each in found] == [each.split() for each in statements]
    assert typed.split() == rest.split()


# --- scripts ------------------------------------------------------------------------------------------------------------------


def test_a_script_ends_at_its_first_error() -> None:
    ran = list[str]()

    def run(statement: str) -> None:
        ran.append(statement)
        if statement == "bad":
            raise BadInput("it is bad")

    run_script(run, "one; two;\n three")
    assert ran == ["one", "two", "three"]
    with pytest.raises(BadInput):
        run_script(run, "four; bad; five")
    assert ran == ["one", "two", "three", "four", "bad"]


# --- the shell ----------------------------------------------------------------------------------------------------------------


class Typed:
    """Lines that a person types; an exception among them is what the terminal does meanwhile."""

    def __init__(self, lines: Sequence[str | type[BaseException]]) -> None:
        self.prompts = list[str]()
        self._lines = iter(lines)

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        line = next(self._lines, EOFError)
        if isinstance(line, str):
            return line
        raise line


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Type lines into a shell; return the statements that were run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def type_lines(
        *lines: str | type[BaseException], fails: dict[str, BaseException] | None = None, as_json: bool = False
    ) -> list[str]:
        ran = list[str]()

        def run(statement: str) -> None:
            ran.append(statement)
            if fails and statement in fails:
                raise fails[statement]

        run_shell(run, lambda: ["events"], "duckdb", as_json=as_json, read=Typed(lines))
        return ran

    return type_lines


def test_the_shell_runs_what_ends_with_a_semicolon(shell: Any) -> None:
    assert shell("select 1", "from t; select 2;", "select 3") == ["select 1\nfrom t", "select 2"]


@pytest.mark.parametrize("word", ["\\q", "quit", "exit;", " QUIT "])
def test_the_shell_is_left_by_a_word(shell: Any, word: str) -> None:
    assert shell("select 1;", word, "select 2;") == ["select 1"]


def test_errors_do_not_end_the_shell(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fails = {
        "a": BadInput("a is wrong"),
        "b": ReplicaUnavailable("b is away"),
        "c": KeyboardInterrupt(),
        "d": typer.Exit(3),
        "e": ZeroDivisionError("e"),
    }
    assert shell("a;", "b;", "c;", "d;", "e;", "f;", fails=fails) == ["a", "b", "c", "d", "e", "f"]
    errors = capsys.readouterr().err.splitlines()
    assert errors == [
        "replitree: a is wrong",
        "replitree: b is away",
        "replitree: cancelled",
        "replitree: unexpected ZeroDivisionError: e",
    ]
    assert shell("a;", "f;", fails=fails, as_json=True) == ["a", "f"]
    captured = capsys.readouterr()
    assert captured.err == '{"error": "BadInput", "message": "a is wrong"}\n'
    assert captured.out.strip() == ""


def test_interrupt_forgets_what_is_typed_and_help_is_no_statement(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell("select 1", KeyboardInterrupt, "help", "select 2;") == ["select 2"]
    assert "Statements end with a semicolon" in capsys.readouterr().out


# --- the command --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Make table `t` of 30 rows, which the command finds; no Spark starts."""
    make(cluster, tmp_path)
    monkeypatch.setattr(replitree.client, "connect", lambda _: cluster.connect())
    monkeypatch.setattr("replitree.spark.session.session.spark_session", lambda **_: pytest.fail("Spark was started"))
    return cluster


@pytest.mark.usefixtures("table")
def test_statements_come_from_a_file_or_a_pipe(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = "-- two queries\nselect count(*) n from t;\nselect max(k) m from t where k < 5"
    (tmp_path / "queries.sql").write_text(statements)
    ran = run("sql", "--file", "queries.sql", "--output", "csv", *URL)
    assert (ran.status, ran.out) == (0, "n\n30\nm\n4\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO(statements))
    assert run("sql", "--json", *URL).out.splitlines() == [
        '{"columns":[{"name":"n","type":"bigint"}],"rows":[{"n":30}]}',
        '{"columns":[{"name":"m","type":"bigint"}],"rows":[{"m":4}]}',
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("select 1 a; select nope from t; select 2 b;"))
    ran = run("sql", "--output", "csv", *URL)
    assert (ran.status, ran.out) == (2, "a\n1\n")
    assert "nope" in ran.err


@pytest.mark.usefixtures("table")
def test_options_of_one_statement_are_refused_for_several(run: Run, tmp_path: Path) -> None:
    (tmp_path / "queries.sql").write_text("select 1;")
    assert run("sql", "--file", "queries.sql", "--id", "x", *URL).err == (
        "replitree: --id and --final are about one statement: give it as QUERY\n"
    )
    assert "leave one of them out" in run("sql", "select 1", "--file", "queries.sql", *URL).err
    assert run("sql", "--file", "missing.sql", *URL).err == "replitree: missing.sql: No such file or directory\n"
    (tmp_path / "queries.sql").write_bytes(b"select '\xff';")
    assert "no text in UTF-8" in run("sql", "--file", "queries.sql", *URL).err


@pytest.mark.usefixtures("table")
def test_a_terminal_without_a_query_is_a_shell_with_a_private_history(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    master, slave = pty.openpty()
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(master, b"select count(*) n\nfrom t;\nselect nope from t;\nselect 5 five;\n\\q\n")
        ran = run("sql", "--output", "csv", *URL)
    os.close(master)
    assert ran.status == 0
    assert "n\n30\n" in ran.out
    assert "five\n5\n" in ran.out
    assert ran.err.count("\n") == 1
    assert "nope" in ran.err
    history = tmp_path / "state" / "replitree" / "sql_history"
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
