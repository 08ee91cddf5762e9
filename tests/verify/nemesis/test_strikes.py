"""Faults by commands: files of them, and that what was struck is healed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from replitree.errors import BadInput
from replitree_verify.nemesis import strikes
from replitree_verify.nemesis.strikes import CommandedFault, RunFailed, Strikes, read_faults


def command(script: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import sys; from pathlib import Path; {script}", *map(str, arguments))


APPEND = "Path(sys.argv[1]).open('a').write(sys.argv[2])"


def marks(file: Path, name: str) -> CommandedFault:
    """Return a fault that writes down when it strikes and when it is healed."""
    return CommandedFault(name, command(APPEND, file, f"+{name}"), command(APPEND, file, f"-{name}"), hold_s=0.01)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strikes, "QUIET_S_MAX", 0.01)
    monkeypatch.setattr(strikes, "HEAL_PAUSE_S", 0.01)


def test_faults_are_read_and_what_is_wrong_is_said(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(
        '[[fault]]\nname = "kill r2"\nstrike = ["docker", "kill", "r2"]\nheal = ["docker", "start", "r2"]\n'
    )
    assert read_faults(file) == (CommandedFault("kill r2", ("docker", "kill", "r2"), ("docker", "start", "r2")),)
    for text, problem in (
        ("", "fault"),
        ("[[fault]", "faults.toml"),
        ('[[fault]]\nname = "a"\nstrike = []\nheal = ["true"]', "strike"),
        ('[[fault]]\nname = "a"\nstrike = ["true"]', "heal"),
        ('[[fault]]\nname = "a"\nstrike = "kill r2"\nheal = ["true"]', "array"),
        ('[[fault]]\nname = "a"\nstrike = ["true"]\nheal = ["true"]\nhold = 1', "hold"),
        ('[[fault]]\nname = "a"\nstrike = ["true"]\nheal = ["true"]\n' * 2, "two faults"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=problem):
            read_faults(file)
    with pytest.raises(BadInput, match="can't be read"):
        read_faults(tmp_path / "none.toml")


def test_every_round_heals_what_it_has_struck(tmp_path: Path) -> None:
    file, said = tmp_path / "done", list[str]()
    names = ("a", "b", "c")
    hurt = Strikes([marks(file, name) for name in names], 3, said.append)
    for _ in range(8):
        begun = len(hurt.done)
        hurt.round()
        assert 1 <= len(hurt.done) - begun <= 3
    done = file.read_text()
    assert all(done.count(f"+{name}") == done.count(f"-{name}") > 0 for name in names)
    assert len(hurt.done) == done.count("+")
    assert all(each.begin < each.end for each in hurt.done)
    assert said[0].startswith("strike: ")
    assert said[-1].startswith("healed: ")


def test_no_fault_is_held_for_longer_than_it_may_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    # For this module alone: what waits for a command sleeps, too.
    monkeypatch.setattr(strikes, "time", SimpleNamespace(sleep=slept.append, monotonic_ns=time.monotonic_ns))
    monkeypatch.setattr(strikes, "AT_ONCE", (2,))
    monkeypatch.setattr(strikes, "QUIET_S_MAX", 0.0)
    file = tmp_path / "done"
    short, long = marks(file, "short"), CommandedFault("long", command("pass"), command("pass"), hold_s=600.0)
    hurt = Strikes([short, long], 1, lambda _: None)
    for _ in range(5):
        slept.clear()
        hurt.round()
        assert len(slept) == 3
        assert sum(slept) <= short.hold_s


def test_the_same_seed_strikes_in_the_same_way(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "other"]
    for file in files:
        hurt = Strikes([marks(file, name) for name in "abc"], 5, lambda _: None)
        for _ in range(4):
            hurt.round()
    assert files[0].read_text() == files[1].read_text()


@pytest.mark.parametrize(
    ("strike", "problem"),
    [
        (command("sys.exit('no such machine')"), "ended with 1: no such machine"),
        (("/no/such/command",), "could not be run"),
    ],
)
def test_a_strike_that_fails_ends_the_run_and_is_healed_all_the_same(
    tmp_path: Path, strike: tuple[str, ...], problem: str
) -> None:
    file = tmp_path / "done"
    hurt = Strikes([CommandedFault("broken", strike, command(APPEND, file, "healed"), 0.01)], 1, lambda _: None)
    with pytest.raises(RunFailed, match=f"fault 'broken'.*{problem}"):
        hurt.round()
    assert file.read_text() == "healed"


def test_what_can_not_be_healed_is_tried_again_and_then_said(tmp_path: Path) -> None:
    file = tmp_path / "done"
    fails_twice = "done = Path(sys.argv[1]); done.open('a').write('x'); sys.exit(len(done.read_text()) < 3)"
    faults = [
        CommandedFault("stubborn", command("pass"), command(fails_twice, file), 0.01),
        CommandedFault("lasting", command("pass"), command("sys.exit(1)"), 0.01),
    ]
    hurt = Strikes(faults[:1], 1, lambda _: None)
    hurt.round()
    assert file.read_text() == "xxx"
    hurt = Strikes(faults[1:], 1, lambda _: None)
    with pytest.raises(RunFailed, match=r"'lasting'.*still hurt: heal it by hand"):
        hurt.round()
    assert hurt.done == []
