"""Damage to what a replica keeps beside its parts: detached parts, frozen snapshots, the kept definition.

Nothing of it can be repaired from another replica: it must be refused when it is used, and reported by a check.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from replitree.errors import ReplitreeError
from replitree.storage.disk.frozen import FROZEN_FILE
from replitree.storage.disk.kept_definition import FILE, read_definition
from replitree.storage.parts.manifest import MANIFEST_FILE
from replitree.storage.rewrite.read import read_parts
from tests.damage.hurt import HURTS, hurt
from tests.damage.tally import CRASH, LEFT, REFUSED, REPORTED, RIGHT, WRONG, Tally
from tests.damage.world import World, equal

STAGING = "attached"
FROZEN = "before"


class Aside:
    """What lies aside at the damaged replica of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = world.victim.table().store
        self.rows = world.put_aside(FROZEN)

    def files(self, kind: str) -> list[Path]:
        """Return the files of one kind."""
        root = self.store.root
        patterns = {
            "detached data": "detached/*/data-0.parquet",
            "detached man.": f"detached/*/{MANIFEST_FILE}",
            "frozen data": f"frozen/{FROZEN}/*/data-0.parquet",
            "frozen man.": f"frozen/{FROZEN}/*/{MANIFEST_FILE}",
            "frozen.json": f"frozen/{FROZEN}/{FROZEN_FILE}",
            "definition": FILE,
        }
        return sorted(path for path in root.glob(patterns[kind]) if not path.parent.name.startswith("broken_"))

    KINDS = ("detached data", "detached man.", "frozen data", "frozen man.", "frozen.json", "definition")

    def damage_once(self, chance: random.Random, tally: Tally) -> None:
        """Damage one file, use it, let the replica check, and put the file back."""
        kind, way = chance.choice(self.KINDS), chance.choice(list(HURTS))
        files = self.files(kind)
        path = chance.choice(files)
        others = [other.read_bytes() for other in files if other != path]
        before = hurt(path, way, chance, others)
        if before is None:
            return
        uses = {"detached": self._attach, "frozen": self._read_frozen, "definiti": self._read_definition}
        use = next(use for begin, use in uses.items() if kind.startswith(begin))
        shown, said = self._judge(use, path)
        reported = self.world.victim.post("check").get("aside", [])
        end = REPORTED if reported else LEFT
        tally.add(kind, way, shown, end, said)
        path.write_bytes(before)

    @staticmethod
    def _judge(use: Callable[[Path], bool], path: Path) -> tuple[str, str]:
        try:
            return (RIGHT, "") if use(path) else (WRONG, str(path))
        except (ReplitreeError, OSError) as error:
            return REFUSED, repr(error)
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            return CRASH, repr(error)

    def _attach(self, path: Path) -> bool:
        """Go through what an attach does until its rows are about to be published."""
        try:
            manifest = self.store.staged.attach(path.parent.name, STAGING)
            return self._is_right([self.store.staged_path(STAGING, manifest.partition)])
        finally:
            self.store.staged.remove(STAGING)

    def _read_frozen(self, path: Path) -> bool:
        snapshot = self.store.frozen_snapshot(FROZEN)
        folder = self.store.frozen_path(FROZEN)
        if path.name == FROZEN_FILE:
            return {part.name for part in snapshot.parts} == {each.name for each in folder.iterdir() if each.is_dir()}
        return self._is_right([path.parent])

    def _read_definition(self, _: Path) -> bool:
        return read_definition(self.store.root) == self.world.victim.table().definition

    def _is_right(self, folders: list[Path]) -> bool:
        """Whether the rows of a folder are those of the partition that it is called after, or of one that it was staged as."""
        found = read_parts(folders, self.world.victim.table().definition)
        if not found.num_rows:
            return False
        numbers = set(found["p"].to_pylist())
        expected = [rows for number, rows in self.rows.items() if number in numbers]
        return len(numbers) == 1 and bool(expected) and equal(found, pa.concat_tables(expected))
