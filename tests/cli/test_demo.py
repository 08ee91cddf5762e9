"""The parts of the demo that need no cluster: the walk, the history, the questions, the picture, the screen."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.cli.demo import Screen
from replitree.demo import git, inventory, questions
from replitree.demo.picture import ASCII, ReplicaPosition, draw
from replitree.errors import BadInput
from replitree.spark.session.quiet import quiet_children


def walked(root: Path, skipped: frozenset[str] = frozenset(), limits: inventory.WalkLimits | None = None) -> pa.Table:
    pieces = inventory.starting_points(str(root), skipped, wanted=4)
    batches = list(inventory.batches(iter(pieces), skipped, 1, limits or inventory.WalkLimits()))
    return pa.Table.from_batches(batches, inventory.arrow_schema())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for folder in ("a/deep/deeper/deepest", "b", "c/skipped/inside", "d"):
        (root / folder).mkdir(parents=True)
    (root / "a" / "one.TXT").write_text("12345")
    (root / "a" / "deep" / "deeper" / "deepest" / "two.tar.gz").touch()
    (root / "b" / ".profile").touch()
    (root / "c" / "skipped" / "inside" / "secret").touch()
    (root / "d" / "loop").symlink_to(root)
    return root


def test_walk_sees_everything_once(tree: Path) -> None:
    found = walked(tree)
    expected = [str(tree), *(str(path) for path in tree.rglob("*"))]
    assert sorted(found.column("path").to_pylist()) == sorted(expected)


def test_walk_tells_kind_size_and_suffix_and_follows_no_link(tree: Path) -> None:
    rows = {Path(row["path"]).name: row for row in walked(tree).to_pylist()}
    assert (rows["one.TXT"]["kind"], rows["one.TXT"]["size"], rows["one.TXT"]["suffix"]) == ("file", 5, "txt")
    assert rows["two.tar.gz"]["suffix"] == "gz"
    assert rows[".profile"]["suffix"] is None
    assert rows["loop"]["kind"] == "link"
    assert rows["deeper"]["kind"] == "folder"
    assert rows["one.TXT"]["owner"] == inventory.owner_name(os.getuid())
    assert rows["one.TXT"]["modified"].year >= 2024


def test_walk_leaves_out_what_it_is_told(tree: Path) -> None:
    paths = walked(tree, frozenset({str(tree / "c" / "skipped")})).column("path").to_pylist()
    assert not [path for path in paths if "skipped" in path]
    assert str(tree / "c") in paths


def test_walk_goes_on_when_a_folder_is_not_ours_to_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def refused(path: str) -> Any:
        if path.endswith("/b"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    names = {Path(path).name for path in walked(tree).column("path").to_pylist()}
    assert "b" in names
    assert ".profile" not in names
    assert "one.TXT" in names


def test_walk_goes_on_when_a_file_is_gone(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entries(folder: str) -> list[Any]:
        found = before(folder)
        (tree / "a" / "one.TXT").unlink(missing_ok=True)
        return found

    before = inventory._entries  # noqa: SLF001 - where a file may disappear between two looks
    monkeypatch.setattr(inventory, "_entries", entries)
    assert "two.tar.gz" in {Path(path).name for path in walked(tree).column("path").to_pylist()}


def test_names_that_are_no_unicode_are_shown_with_escapes(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.x", os.O_CREAT))
    paths = walked(tmp_path).column("path").to_pylist()
    assert any(path.endswith("\\xff.x") for path in paths)


def test_times_that_no_calendar_has_are_null(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", (0, -5))
    rows = {Path(row["path"]).name: row for row in walked(tmp_path).to_pylist()}
    assert rows["old"]["modified"] is None


def test_walk_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "BATCH_ROWS", 10)
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert walked(tmp_path, limits=inventory.WalkLimits(rows_max=30)).num_rows == 30
    assert walked(tmp_path, limits=inventory.WalkLimits(seconds_max=0)).num_rows == 10
    assert walked(tmp_path).num_rows == 101


def test_folders_of_the_kernel_are_left_out() -> None:
    assert {"/proc", "/sys"} <= inventory.skipped_folders()


# --- git --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    def call(*words: str) -> None:
        identity = ["-c", "user.name=An Author", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    call("init", "-q")
    (tmp_path / "odd\nname").write_text("1")
    (tmp_path / "b").write_text("1")
    call("add", ".")
    call("commit", "-q", "-m", "first")
    (tmp_path / "b").write_text("2")
    (tmp_path / "odd\nname").unlink()
    call("add", ".")
    call("commit", "-q", "-m", "second")
    return tmp_path


def test_history_has_a_row_for_every_change(repository: Path) -> None:
    git.check_repository(repository)
    table = pa.Table.from_batches(list(git.batches(repository)), git.arrow_schema())
    changes = [(row["author"], row["change"], row["path"]) for row in table.to_pylist()]
    assert sorted(changes) == [
        ("An Author", "added", "b"),
        ("An Author", "added", "odd\nname"),
        ("An Author", "deleted", "odd\nname"),
        ("An Author", "modified", "b"),
    ]


def test_folder_without_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no git repository"):
        git.check_repository(tmp_path)


# --- questions, picture, screen ---------------------------------------------------------------------------------------------


def test_there_are_five_questions_about_anything() -> None:
    assert len(questions.INVENTORY) == len(questions.GIT) == 5
    for columns in (
        [("a", "int")],
        [("m", "map<string,int>")],
        [("s", "string"), ("t", "timestamp"), ("odd`name", "double")],
    ):
        asked = questions.about(columns)
        assert len(asked) == 5
        assert all("FROM data" in question.sql for question in asked)


def test_picture_shows_who_is_behind_and_who_was_killed() -> None:
    marks = [
        ReplicaPosition("r1", 10),
        ReplicaPosition("r2", 10, queue=5, state="behind"),
        ReplicaPosition("r3", 2, state="killed"),
        ReplicaPosition("r4", None),
    ]
    assert draw(10, marks, signs=ASCII, width=10) == [
        "log          ----------| 10",
        "r1   alive   ==========> 10",
        "r2   behind  =====~~~~~> 10 (5 in its queue)",
        "r3   killed  ==x         2",
        "r4   alive               not there yet",
    ]


def test_picture_of_an_empty_log() -> None:
    assert draw(0, [ReplicaPosition("r1", 0)], signs=ASCII, width=4)[1] == "r1   alive  ====> 0"


def test_last_but_one_is_not_drawn_at_the_end() -> None:
    assert draw(1000, [ReplicaPosition("r1", 999)], signs=ASCII, width=10)[1].count("=") == 9


def test_screen_tells_the_story_as_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.step("First")
    screen.say("something happened → there")
    screen.rows("A question?", ("name", "n"), [("a", 1234), ("b" * 100, 5)])
    screen.line(2, [ReplicaPosition("r1", 2)], keep=False)
    screen.line(2, [ReplicaPosition("r1", 2)], keep=True)
    screen.check("it held", held=True)
    screen.check("it did not", held=False)
    screen.close()
    out = capsys.readouterr().out
    for text in ("1. First", "something happened", "A question?", "1,234", "it held", "it did not"):
        assert text in out
    assert out.count("log") == 1
    assert "b" * 100 not in out


@pytest.fixture
def no_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLITREE_DEBUG", raising=False)


def test_children_are_quiet_unless_they_fail(capfd: pytest.CaptureFixture[str], no_debug: None) -> None:
    with quiet_children():
        subprocess.run(["sh", "-c", "echo greetings >&2"], check=True)
    assert capfd.readouterr().err == ""
    with pytest.raises(subprocess.CalledProcessError), quiet_children():
        subprocess.run(["sh", "-c", "echo the reason >&2; exit 1"], check=True)
    assert "the reason" in capfd.readouterr().err
