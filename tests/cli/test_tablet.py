"""`replitree tablet`: a group is made and looked at; the exit status is 0 only when all is sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replitree.cli.main import main
from replitree.storage.blob_folders import open_group
from replitree.tablet import open as open_tablet
from replitree.tablet.channels import in_one_group
from replitree.tablet.ids import TabletId
from tests.tablet.machine import Words
from tests.tablet.runtime.group import QUIET


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A group that a tablet was led in."""
    assert main(["tablet", "make", str(tmp_path)]) == 0
    group = open_group(tmp_path)
    with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as tablet:
        tablet.execute(b"a")
        tablet.snapshot()
        tablet.execute(b"b")
    group.groups.close()
    return tmp_path


def test_inspect_prints_generations_zero_entries_and_tails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tablet", "inspect", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "tablet 1: fenced up to generation 0, 0, 0" in said
    assert "generation 1: no zero entry; 2 entries, steps 2 to 3, confirmed up to 2, snapshots at 2" in said
    assert "step 3: would be accepted" in said


def test_inspect_gives_programs_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["tablet", "inspect", str(folder), "--json"]) == 0
    (tablet,) = json.loads(capsys.readouterr().out)["tablets"]
    assert tablet["generations"][0]["decisions"] == [[3, "would be accepted"]]


def test_verify_is_0_when_sound_1_when_damaged_3_when_not_known(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tablet", "verify", str(folder)]) == 0
    assert "is sound" in capsys.readouterr().out
    (folder / "2").rename(folder / "away")
    assert main(["tablet", "verify", str(folder), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "unknown"
    (folder / "away").rename(folder / "2")
    path = max((folder / "1").glob("blobs/*/00/*.seg"))
    path.write_bytes(path.read_bytes()[:-20] + bytes(20)[:19] + b"x")
    assert main(["tablet", "verify", str(folder)]) == 1
    assert "DAMAGED  tablet 1: member 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["tablet", "inspect", "nowhere"],
        ["tablet", "verify", "nowhere"],
        ["tablet", "serve", "register", "nowhere", "--peer", "host"],
        ["tablet", "serve", "nothing", "nowhere"],
    ],
)
def test_wrong_input_is_said(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("replitree: ")
