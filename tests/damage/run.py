"""Damage files at random, read, repair; print what became of it: `python -m tests.damage.run --damages 10000 --seed 1`.

The exit status is 1 when a reader showed a wrong row, something crashed, or damage was left without repair or report.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replitree.storage.files import sums
from tests.damage.aside import Aside
from tests.damage.hurt import HURTS, hurt
from tests.damage.tablets import TabletWorld
from tests.damage.tally import LEFT, REPAIRED, REPORTED, Tally
from tests.damage.world import Defects, World

PARTITIONS = 24
ROUNDS = 8
"""Rounds of damage in the life of one cluster."""

DISK_KINDS = ("data", "manifest", "sums", "aside")
STORED_KINDS = ["object", "share man.", "manifest", "data"]
BUCKET_KINDS = ["object", "sums object", "share man.", "manifest", "data"]
STORED_SHARE, BUCKET_SHARE, TABLET_SHARE, TABLET_DAMAGES = 0.2, 0.2, 0.2, 15
"""Shares of the lives that tables in a folder, in a bucket, and tablets have, and damages in the life of a tablet."""

ROWS, SUMMED_ROWS = 400, 6000
"""Rows of a partition at most; and where data files have sums files, so that they have several blocks."""

SUMMED_SHARE, SMALL_BYTES = 0.2, 1024
"""Share of the clusters whose data files have sums files, if they have more than so many bytes."""

REPAIRED_KINDS = frozenset({"data", "manifest", "sums"})
"""Files that each replica has for itself: the other one has a good copy, so these must be repaired, and not only reported."""

ASIDE_DAMAGES = 4
"""Damages to what lies aside, after each round."""


def main() -> int:
    """Run as the arguments say."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--damages", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--kinds", default=",".join((*DISK_KINDS, "object", "bucket", "tablet")))
    arguments.add_argument("--seconds", type=float, default=float("inf"), help="begin no further cluster after so long")
    arguments.add_argument("--refusals", type=int, default=0, help="print so many of the errors that readers got")
    chosen = arguments.parse_args()
    begun = time.monotonic()
    tally, told = Tally(), 0
    chance = random.Random(chosen.seed)
    while tally.damages < chosen.damages and time.monotonic() - begun < chosen.seconds:
        with tempfile.TemporaryDirectory(prefix="replitree-damage-") as folder:
            kinds = chosen.kinds.split(",")
            if "tablet" in kinds and (kinds == ["tablet"] or chance.random() < TABLET_SHARE):
                live_tablet(Path(folder), chance, tally)
            elif "bucket" in kinds and (kinds == ["bucket"] or chance.random() < BUCKET_SHARE):
                live(Path(folder), chance, tally, BUCKET_KINDS, chosen.damages)
            elif "object" in kinds and (kinds == ["object"] or chance.random() < STORED_SHARE):
                live(Path(folder), chance, tally, STORED_KINDS, chosen.damages)
            else:
                live(Path(folder), chance, tally, [kind for kind in kinds if kind in DISK_KINDS], chosen.damages)
        sys.stderr.write(f"{tally.damages} damages, {time.monotonic() - begun:.0f} s\n")
        sys.stderr.writelines(f"bad: {story}\n" for story in tally.stories[told:])
        told = len(tally.stories)
    sys.stdout.write("\n".join([tally.table(), *tally.stories[:50], ""]))
    if chosen.refusals:
        sys.stdout.write("\n".join([*tally.refusals[: chosen.refusals], ""]))
    return 0 if tally.is_clean else 1


def live_tablet(folder: Path, chance: random.Random, tally: Tally) -> None:
    """Live the life of one tablet."""
    world = TabletWorld(folder / "group", chance)
    for _ in range(TABLET_DAMAGES):
        world.damage_once(tally)


def live(folder: Path, chance: random.Random, tally: Tally, kinds: list[str], damages: int) -> None:
    """Live the life of one cluster: rounds of damage, reading and repair."""
    defects = Defects()
    in_bucket = "sums object" in kinds
    has_sums = in_bucket or ("sums" in kinds and chance.random() < SUMMED_SHARE)
    is_stored = bool({"object", "share man."} & set(kinds)) and not in_bucket
    with defects.watching(), summed_above(SMALL_BYTES if has_sums else sums.SUMMED_BYTES_MIN):
        rows = SUMMED_ROWS if has_sums else ROWS
        world = World(folder, PARTITIONS, chance, is_stored=is_stored, in_bucket=in_bucket, rows_max=rows)
        try:
            rounds(world, chance, tally, kinds, damages)
        finally:
            world.close()
    for found in defects.found:
        tally.trouble(f"defect: {found}")


@contextmanager
def summed_above(size: int) -> Iterator[None]:
    """Let data files of more than so many bytes have a sums file."""
    before, sums.SUMMED_BYTES_MIN = sums.SUMMED_BYTES_MIN, size
    try:
        yield
    finally:
        sums.SUMMED_BYTES_MIN = before


def rounds(world: World, chance: random.Random, tally: Tally, kinds: list[str], damages: int) -> None:
    """Damage, read and repair, a few times; then clone and merge."""
    aside = Aside(world) if "aside" in kinds else None
    kinds = [kind for kind in kinds if kind != "aside"]
    for number in range(ROUNDS):
        if tally.damages < damages:
            one_round(world, chance, tally, kinds, restarts=number % 2 == 1)
        if world.lacks():
            return  # no good copy is left of an object that both replicas had: that was reported, and ends this life
        if aside is not None and tally.damages < damages:
            for _ in range(ASIDE_DAMAGES):
                aside.damage_once(chance, tally)
    try:
        for trouble in world.end():
            tally.trouble(trouble)
    except AssertionError as error:
        if not world.lacks():
            tally.trouble(f"at the end: {error}")


def one_round(world: World, chance: random.Random, tally: Tally, kinds: list[str], *, restarts: bool) -> None:
    """Damage a file of most partitions, read each of them, and let the replica repair them."""
    done: dict[int, tuple[str, str]] = {}
    for number in chance.sample(range(world.partitions), world.partitions * 2 // 3):
        kind, way = chance.choice(kinds), chance.choice(list(HURTS))
        path = world.files(kind).get(number)
        if path is not None and hurt(path, way, chance, world.others(kind, way, number)) is not None:
            done[number] = (kind, way)
    if restarts:
        world.victim.restart()
    seen = {number: world.read(number) for number in done}
    trouble = [world.read_all()]
    left = {int(part.split("_")[0]): why for part, why in world.repair().items()}
    for number, (kind, way) in done.items():
        end = REPAIRED if number not in left else LEFT if kind in REPAIRED_KINDS else REPORTED
        said = (seen[number].said, left.get(number, ""))
        tally.add(kind, way, seen[number].shown, end, "; ".join(each for each in said if each))
    trouble += [world.differs(), world.read_all(world.victim)]
    for each in trouble:
        if each is not None:
            tally.trouble(each)


if __name__ == "__main__":
    sys.exit(main())
