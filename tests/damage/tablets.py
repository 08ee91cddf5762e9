"""Damage to the files of one member of a blob group: the tablet's commands are all there, or its opening says what is wrong."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import msgspec

from replitree.errors import ReplitreeError
from replitree.machines.register import CompareAndSet, Register
from replitree.tablet import Settings
from replitree.tablet import open as open_tablet
from replitree.tablet.members.folders import NAME, make_group, open_group
from tests.damage.hurt import HURTS, hurt
from tests.damage.tally import CRASH, LEFT, REFUSED, REPAIRED, REPORTED, RIGHT, WRONG, Tally

MEMBERS = 3
COMMANDS = 20
"""Commands between two damages."""

QUIET = Settings(look_s=3600.0)


class TabletWorld:
    """A group of three directories with a tablet of registers, and what is in these."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._truth: dict[str, str] = {}
        make_group(folder, count=MEMBERS)
        self._write()

    def _write(self) -> None:
        """Set registers; each is set once."""
        with closing(open_group(self._folder)) as group, open_tablet(group, Register(), settings=QUIET) as tablet:
            for _ in range(COMMANDS):
                name, value = f"name {len(self._truth)}", f"{self._chance.randrange(1 << 40):x}"
                tablet.execute(msgspec.msgpack.encode(CompareAndSet(name, 0, value)))
                self._truth[name] = value
            if self._chance.random() < 0.3:
                tablet.snapshot()

    def damage_once(self, tally: Tally) -> None:
        """Damage a file of one member, open the tablet and read it, write on, and repair."""
        files = sorted(path for path in self._folder.rglob("*") if path.is_file() and path.stat().st_size)
        kinds = sorted({self._kind(path) for path in files})
        kind, way = self._chance.choice(kinds), self._chance.choice(list(HURTS))
        path = self._chance.choice([path for path in files if self._kind(path) == kind])
        others = [other.read_bytes() for other in files if other != path and other.suffix == path.suffix]
        before = hurt(path, way, self._chance, others)
        if before is None:
            return
        shown, said = self._look()
        end = REPORTED if shown == REFUSED else REPAIRED
        if shown == RIGHT:
            shown, said = self._go_on()
        if shown == REFUSED and self._put_back(path, before) != RIGHT:
            end = LEFT
        tally.add(kind, way, shown, end, f"{path}: {said}")

    @staticmethod
    def _kind(path: Path) -> str:
        return "group file" if path.name == NAME else f"member {path.suffix.lstrip('.') or path.name}"

    def _look(self) -> tuple[str, str]:
        try:
            with closing(open_group(self._folder)) as group, open_tablet(group, Register(), settings=QUIET) as tablet:
                found = {name: cell.value for name, cell in tablet.read().items()}
                tablet.mend()
        except (ReplitreeError, OSError) as error:
            return REFUSED, repr(error)
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            return CRASH, repr(error)
        return (RIGHT, "") if found == self._truth else (WRONG, f"{len(found)} of {len(self._truth)} registers")

    def _go_on(self) -> tuple[str, str]:
        """Write more, and read all."""
        try:
            self._write()
        except (ReplitreeError, OSError) as error:
            return REFUSED, repr(error)
        return self._look()

    def _put_back(self, path: Path, before: bytes) -> str:
        """Give an operator's answer: the file as it was."""
        path.write_bytes(before)
        return self._look()[0]
