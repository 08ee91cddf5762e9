"""`replitree tablet`: a group is made and looked at; the exit status is 0 only when all is sound."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from replitree.cli.main import main
from replitree.tablet import Settings
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.group.ids import Generation, Step, TabletId, log_entry
from replitree.tablet.members.folders import make_group, open_group
from replitree.tablet.members.frames import OVERHEAD_BYTES, frame_of
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


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_inspect_says_what_is_not_known_and_what_is_lost_and_exits_so(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    for member in ("0", "1"):
        (folder / member).rename(folder / f"away{member}")
    assert main(["tablet", "inspect", str(folder), *words]) == 3
    assert words or "UNKNOWN  tablet 1: the log: " in capsys.readouterr().out
    for member in ("0", "1"):
        (folder / f"away{member}").rename(folder / member)
    lose(folder, 2)
    capsys.readouterr()
    assert main(["tablet", "inspect", str(folder), *words]) == 1
    assert words or "DAMAGED  tablet 1: member 1: blob 1/0/1:2/0" in capsys.readouterr().out


def test_tablets_have_the_numbers_that_they_are_asked_for_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_group(tmp_path)
    group = open_group(tmp_path)
    for number in (10, 16):
        channels = in_one_group(TabletId(number), group.group)
        with open_tablet(group.groups, Words(), channels, settings=QUIET) as tablet:
            for word in (b"a", b"b"):
                tablet.execute(word)
    group.close()
    lose(tmp_path, 1, tablet=16)
    for command in ("inspect", "verify"):
        assert main(["tablet", command, str(tmp_path)]) == 1
        said = capsys.readouterr().out
        assert "DAMAGED  tablet 16: member 0: blob 16/0/1:1/0" in said
        assert "DAMAGED  tablet 10" not in said
    words = ["tablet", "accept-loss", str(tmp_path), "--why", "two disks died", "--tablet"]
    assert main([*words, "10", "--yes"]) == 2
    assert "no loss to accept" in capsys.readouterr().err
    assert main([*words, "16", "--yes"]) == 0
    assert "tablet 16: what can't be read:" in capsys.readouterr().out
    main(["tablet", "inspect", str(tmp_path)])
    assert "LOSS ACCEPTED  tablet 16, generation 2" in capsys.readouterr().out


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


def lose(folder: Path, step: int, tablet: int = 1) -> None:
    """Damage an entry of the first generation on every member."""
    name = frame_of(log_entry(TabletId(tablet), Generation(1), Step(step)), b"")[:24]
    for path in folder.glob("*/blobs/*/00/*.seg"):
        data = bytearray(path.read_bytes())
        if (position := data.find(name)) >= 0:
            data[position + OVERHEAD_BYTES] ^= 1
            path.write_bytes(data)


def test_accepted_loss_is_said_agreed_on_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_group(tmp_path)
    group = open_group(tmp_path)
    with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as tablet:
        for word in (b"a", b"b", b"c", b"d"):
            tablet.execute(word)
    group.close()
    words = ["tablet", "accept-loss", str(tmp_path), "--why", "two disks died", "--who", "ann"]
    assert main(["tablet", "accept-loss", str(tmp_path / "elsewhere"), "--why", "lost"]) == 2
    assert "name the folder that has the group's file" in capsys.readouterr().err
    assert main([*words, "--yes"]) == 2
    assert "no loss to accept" in capsys.readouterr().err
    lose(tmp_path, 3)
    assert main(words) == 2
    said = capsys.readouterr()
    assert "one that has a lease answers reads until that is over" in said.out
    assert "0 s are waited for that" in said.out
    assert "entry 1:3 was confirmed and is not there" in said.out
    assert "everything up to entry 1:2" in said.out
    assert "--yes" in said.err
    (tmp_path / "2").rename(tmp_path / "away")
    assert main([*words, "--yes"]) == 2
    assert "members [2] are away and [] were named" in capsys.readouterr().err
    assert main([*words, "--without", "2"]) == 2
    assert "one that reaches member 2 may acknowledge" in capsys.readouterr().out
    (tmp_path / "away").rename(tmp_path / "2")
    assert main([*words, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == "1:2"
    assert main(["tablet", "inspect", str(tmp_path)]) == 1  # what was given up is damaged, until a snapshot is made
    said_of_it = capsys.readouterr().out
    assert "LOSS ACCEPTED  tablet 1, generation 2, by ann" in said_of_it
    assert "two disks died" in said_of_it
    group = open_group(tmp_path)
    with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as tablet:
        assert tablet.read() == ("a", "b")
        tablet.execute(b"e")
        tablet.snapshot()
    group.close()
    assert main(["tablet", "inspect", str(tmp_path), "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["tablets"]
    ((generation, record),) = [(each["generation"], each["record"]) for each in report["losses"]]
    assert (generation, record["who"], record["why"], record["kept"]) == (2, "ann", "two disks died", "1:2")


def test_lost_member_is_made_anew(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tablet", "replace", str(folder), "--member", "2"]
    assert main(words) == 1
    assert "move it aside first" in capsys.readouterr().err
    assert main([*words, "--dir", "new", "--store", "memory:///"]) == 2
    assert main([*words, "--service", "127.0.0.1:1"]) == 2
    assert main(["tablet", "replace", str(folder), "--member", "3"]) == 2
    shutil.rmtree(folder / "2")
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["member"] == 2
    assert main(["tablet", "verify", str(folder)]) == 0
    assert main([*words, "--store", f"file://{tmp_path}/objects"]) == 0
    assert "give the group's file to every host" in capsys.readouterr().out
    assert main(["tablet", "verify", str(folder)]) == 0


def test_group_on_a_store_is_made_inspected_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tablet", "make", str(tmp_path / "g"), "--store", f"file://{tmp_path}/objects"]) == 0
    assert "1 members" in capsys.readouterr().out
    group = open_group(tmp_path / "g")
    with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as tablet:
        tablet.execute(b"a")
        tablet.snapshot()
    group.close()
    assert main(["tablet", "inspect", str(tmp_path / "g")]) == 0
    assert "snapshots at 2" in capsys.readouterr().out
    assert main(["tablet", "verify", str(tmp_path / "g")]) == 0
    (found,) = tmp_path.glob("objects/blobs/*/00/*/00000002.000000")
    found.write_bytes(found.read_bytes()[:-1] + b"?")
    assert main(["tablet", "verify", str(tmp_path / "g")]) == 1


@pytest.mark.parametrize(
    ("members", "flights"), [([], 4), (["--store", "{}"], 16), (["--store", "{}", "--member", "0"], 4)]
)
def test_more_entries_are_on_their_way_to_stores(
    members: list[str], flights: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = list[Settings]()

    def run(_: object, __: object, settings: Settings, *___: object) -> int:
        served.append(settings)
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("replitree.machines.process.run", run)
    assert main(["tablet", "make", "g", *(word.format(f"file://{tmp_path}/objects") for word in members)]) == 0
    assert main(["tablet", "serve", "register", "g"]) == 0
    assert [each.limits.flights for each in served] == [flights]


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
