"""Text of users is shown as it is: no command reads it as markup, and none lets it reach the terminal as a control sequence."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.live import Live
from rich.text import Text
from typing_extensions import override

import replitree.client
from replitree.cli import output
from replitree.cli.cluster.up import ReplicaLine
from replitree.cli.output import Output, print_error
from replitree.cli.tables.files import find_source
from replitree.cli.tables.insert import _progress
from replitree.cli.tables.load import LoadProgress
from replitree.errors import BadInput
from tests.cli.conftest import Run
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure

URL = ("--url", "zk://nowhere:1/replitree")

HOSTILE = ("[abc]", "end[/b]", "[bold]x", "[red]", "[link=http://x]y[/link]", ":smile:", "[/]", "\\[x]")
"""Tags that vanish, tags that close what is not open, tags that style, names of emoji."""


class Terminal(io.StringIO):
    """Standard output that says that it is a terminal."""

    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", HOSTILE)
def test_table_shows_titles_headings_and_cells_as_they_are(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(f"of {text}", ("n", f"name {text}"), [(1, text), (2, [text]), (3, {"k": text})])
    out = capsys.readouterr().out
    assert f"of {text}" in out
    assert f"name {text}" in out
    assert f"│ {text} " in out
    assert out.count(text) == 5


@pytest.mark.parametrize("width", [400, 20])
@pytest.mark.parametrize("text", HOSTILE)
def test_terminal_shows_the_same(text: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    Output().table(text, ("a", "b"), [(text, "x" * 15), ("y", text)])
    shown = "".join(screen.getvalue().split())  # a narrow terminal folds a text
    assert shown.count("".join(text.split())) == 3


@pytest.mark.parametrize("text", HOSTILE)
def test_fields_blocks_results_and_errors_show_the_same(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Output().fields(text, {"note": text})
    Output().vertical("", (text,), [(text,)])
    Output().result({}, text)
    print_error("BadInput", text, as_json=False)
    captured = capsys.readouterr()
    assert captured.out.count(text) == 5
    assert captured.err == f"replitree: {text}\n"


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x1b]0;title\x07 \x1b[2J \x9b31m \r over"
    Output().table(text, (text,), [(text,)])
    Output().fields(text, {"note": text})
    Output().vertical("", (text,), [(text,)])
    Output().result({}, text)
    print_error("BadInput", text, as_json=False)
    captured = capsys.readouterr()
    for sign in ("\x1b", "\x07", "\x9b", "\r"):
        assert sign not in captured.out + captured.err
    assert "\\x1b[2J" in captured.out


@pytest.mark.parametrize("text", HOSTILE)
def test_lines_drawn_in_place_show_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    line = ReplicaLine(text, "serving", "127.0.0.1:1", 7, 1, 2)
    with Live(console=output.console(), auto_refresh=False) as live:
        live.update(Text(str(line)), refresh=True)
    assert text in screen.getvalue()


def test_name_of_a_file_in_the_progress_bar_is_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "400")  # the bar shortens a path that has no room
    file = tmp_path / "[red]end[bold].csv"
    file.write_text("k\n1\n")
    with _progress(find_source(str(file), None), quiet=False) as report:
        report(LoadProgress(1, 1, 0))
    assert "[red]end[bold].csv" in screen.getvalue()


# --- every command that shows a table ---------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Make a table with hostile names, whose replica says hostile things."""
    found = FakeCluster(tmp_path / "cluster")
    found.create("t", "`[abc]` bigint not null, `end[/b]` struct<`:smile:`: int>, v string", order_by="[abc]")
    replica = found.add_replica("t", "r1")
    waiting = [{"part": "all_0_0_0", "reason": "full [/b]", "tries": 3}]
    replica.answers = {
        "GET ": Failure(503, "Unavailable", "no [/b] at [red]"),  # of the server as a whole, which the doctor asks
        "GET status": {
            "state": "read_only",
            "reason": "no room [/b] on [red]",
            "postponed": [{"index": 1, "reason": "gone [/b]", "tries": 2, "since_s": 3.0}],
            "moving": {"storage": "s3://lake/[x]", "parts_left": 2, "bytes_left": 2048, "waiting": waiting},
        },
        "GET mutations": {
            "mutations": [
                {
                    "index": 3,
                    "partition": "[bold]x",
                    "command": '{"format":1,"kind":"delete","where":"v = \'[/b]\'"}',
                    "parts_done": 1,
                    "parts_left": 1,
                    "tries": 2,
                    "finished": False,
                    "reason": "[red] is [/b]",
                }
            ]
        },
        "GET frozen": {
            "frozen": [
                {"name": "f1", "index": 4, "note": "see [ticket-1] and [/x]", "parts": 1, "rows": 1, "bytes": 1}
                | {"path": "/frozen/[a]", "replica": "r1"}
            ]
        },
        "GET detached": {
            "detached": [{"name": "[bold]d", "part": "all_0_3_1", "partition": "[/b]", "rows": 10, "bytes": 1000}]
        },
    }
    monkeypatch.setattr(replitree.client, "connect", lambda _: found.connect())
    yield found
    found.close()


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("table", "show", "t"), ("[abc]", "end[/b]")),
        (("status",), ("no room [/b] on [red]", "gone [/b]", "s3://lake/[x]")),
        (("status", "t"), ("no room [/b] on [red]",)),
        (("doctor",), ("does not answer: no [/b] at [red]",)),
        (("table", "mutations", "t"), ("[bold]x", "DELETE FROM t WHERE v = '[/b]'", "[red] is [/b]")),
        (("table", "frozen", "t"), ("see [ticket-1] and [/x]",)),
        (("table", "detached", "t"), ("[bold]d",)),
        (("table", "storage", "t"), ("full [/b]",)),
    ],
    ids=lambda given: " ".join(given) if given[0].islower() else "",
)
@pytest.mark.usefixtures("cluster")
def test_command_shows_what_users_wrote(run: Run, arguments: tuple[str, ...], shown: tuple[str, ...]) -> None:
    ran = run(*arguments, *URL)
    assert ran.err == ""
    for text in shown:
        assert text in ran.out


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("text", ["[/b]", "end[red]"])
def test_error_repeats_what_users_wrote(run: Run, text: str) -> None:
    ran = run("table", "show", text, *URL)
    assert ran.status == 2
    assert text in ran.err


def test_bad_input_of_any_text_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("BadInput", str(BadInput("[/b] is not understood")), as_json=False)
    assert capsys.readouterr().err == "replitree: [/b] is not understood\n"
