"""Faults of a cluster elsewhere: commands of its operator that hurt it, and commands that heal it.

A file of faults is TOML::

    [[fault]]
    name = "kill r2"
    strike = ["docker", "kill", "r2"]
    heal = ["docker", "start", "r2"]
    hold_s = 8.0

Guarantees: no shell reads a command; what was struck is healed, also when the run is interrupted or another command fails; a
fault that could not be healed is an error that names the command.
"""

from __future__ import annotations

import random
import subprocess
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from replitree.decoding import converted
from replitree.errors import BadInput, ReplitreeError
from replitree_verify.nemesis.overview import Struck

COMMAND_S = 120.0
"""How long a command may take, in seconds."""

HEAL_TRIES, HEAL_PAUSE_S = 3, 1.0
"""How often a command that heals is tried, and the pause in between, in seconds."""

AT_ONCE = (1, 1, 1, 2, 2, 3)
"""How many faults strike together, drawn from these."""

QUIET_S_MAX = 4.0
"""Longest time without a fault, in seconds: a cluster that is never well has nothing to lose."""

Command = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class CommandedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that commands of the user make and heal.

    Attributes
    ----------
    name
        What the report calls it.
    strike, heal
        The commands, word by word.  A command ends with 0 when it has done its work.
    hold_s
        How long it lasts at most, in seconds, besides what the commands take.
    """

    name: str
    strike: Command
    heal: Command
    hold_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 5.0

    @property
    def text(self) -> str:
        """The command that hurts, in one line."""
        return " ".join(self.strike)

    def can_hurt(self) -> bool:
        """Return True: whatever there is to be hurt, only the command knows."""
        return True

    def hurt(self) -> None:
        """Hurt the cluster.  Raises `RunFailed`."""
        _run(self.name, self.strike)

    def mend(self) -> None:
        """Heal it again.  Raises `RunFailed`."""
        _run(self.name, self.heal)


class NemesisFault(Protocol):
    """A fault."""

    @property
    def name(self) -> str:
        """What the report calls it."""
        ...

    @property
    def text(self) -> str:
        """What it does, in a few words."""
        ...

    @property
    def hold_s(self) -> float:
        """How long it lasts at most, in seconds."""
        ...

    def can_hurt(self) -> bool:
        """Tell whether there is something to be hurt now.  Raises `RunFailed` if there should be."""
        ...

    def hurt(self) -> None:
        """Hurt it.  Raises `RunFailed`."""
        ...

    def mend(self) -> None:
        """Heal what was hurt.  Raises `RunFailed`."""
        ...


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: Annotated[tuple[CommandedFault, ...], msgspec.Meta(min_length=1)]


class RunFailed(ReplitreeError):
    """The run could not be carried out: a command of a fault did not do its work, or a visitor met a defect."""


def read_faults(file: Path) -> tuple[CommandedFault, ...]:
    """Read a file of faults.

    Raises
    ------
    BadInput
        It can't be read, is not TOML, or has a wrong field; or two faults have one name.
    """
    try:
        faults = converted(tomllib.loads(file.read_text("utf-8")), _File).fault
    except OSError as error:
        raise BadInput(f"{file} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadInput(f"{file}: {error}; each [[fault]] has name, strike, heal and perhaps hold_s") from error
    names = [fault.name for fault in faults]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"{file}: two faults are called {twice!r}")
    return faults


class Strikes:
    """Strikes with faults, some at once, and heals them.

    Parameters
    ----------
    faults
        Those to draw from.
    seed
        Which, when and for how long is drawn from this.
    say
        Hears what is done.
    """

    def __init__(self, faults: Sequence[NemesisFault], seed: int, say: Callable[[str], object]) -> None:
        self._faults, self._say = faults, say
        self._random = random.Random(f"{seed}/strikes")  # noqa: S311 - repeatable is what it must be
        self._begun: dict[NemesisFault, int] = {}
        self.done: list[Struck] = []
        """What has struck and was healed."""

    def round(self) -> None:
        """Wait, strike with one to three faults, hold them, and heal them.

        Raises
        ------
        RunFailed
            A command failed.  What had struck was healed, unless the error says otherwise.
        """
        chance = self._random
        time.sleep(chance.uniform(0.0, QUIET_S_MAX))
        able = [fault for fault in self._faults if fault.can_hurt()]
        faults = chance.sample(able, min(chance.choice(AT_ONCE), len(able)))
        if not faults:
            return
        # The first one lasts until the last one is healed, so none is held for longer than the shortest of them may last.
        hold_s = min(fault.hold_s for fault in faults) / len(faults)
        try:
            for fault in faults:
                self._say(f"strike: {fault.name}")
                # Noted before: a command that fails may have done its work.
                self._begun[fault] = time.monotonic_ns()
                fault.hurt()
                time.sleep(chance.uniform(0.0, hold_s))
        finally:
            self.heal()

    def heal(self) -> None:
        """Heal everything that has struck.  Raises RunFailed, when all else is healed."""
        failed: RunFailed | None = None
        for fault, begun in list(self._begun.items()):
            for tries_left in reversed(range(HEAL_TRIES)):
                try:
                    fault.mend()
                except RunFailed as error:
                    if tries_left:
                        time.sleep(HEAL_PAUSE_S)
                        continue
                    failed = RunFailed(f"{error}. The cluster is still hurt: heal it by hand")
                    failed.__cause__ = error
                else:
                    self._say(f"healed: {fault.name}")
                    self.done.append(Struck(fault.name, fault.text, begun, time.monotonic_ns()))
                    del self._begun[fault]
                    break
        if failed is not None:
            raise failed


def _run(name: str, command: Sequence[str]) -> None:
    words = " ".join(command)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise RunFailed(f"fault {name!r}: `{words}` could not be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"fault {name!r}: `{words}` did not end within {COMMAND_S:g} s") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise RunFailed(f"fault {name!r}: `{words}` ended with {done.returncode}{last and f': {last}'}")


__all__ = ["CommandedFault", "NemesisFault", "RunFailed", "Strikes", "read_faults"]
