"""What is hurt of a table on an object store, when, and for how long: a pure function of a seed.

Every round kills: replicas, the store, or both (SIGKILL).  What else it has is drawn as in `tests.faults.schedule`, of which
some kinds are left out here: nothing that is about the ensemble alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tests.faults.schedule import KINDS, QUIET_S_MAX, Draw, Fields, Round, Scene, draw_strike

STORE = "store"
EXTRA = (0, 0, 1, 1, 2)
"""How many strikes a round has besides its kill, drawn from these."""

CALM_SHARE = 0.7
"""So many of the rounds wait, at their end, until every replica serves again."""


def _store(longest_s: float, amount: float = 0.0) -> Draw:
    def draw(chance: random.Random, _: Scene) -> Fields:
        return {"targets": (STORE,), "hold_s": chance.uniform(0.0, longest_s), "amount": chance.uniform(0, amount)}

    return draw


DRAWS: Mapping[str, Draw] = {
    **KINDS,
    "store-kill": _store(4.0),
    "store-hurt": _store(5.0, 0.08),
    "store-cut": _store(5.0),
}
"""Faults of replicas and of the store; of `store-hurt` the amount is the share of each ill."""

KILLS = ("kill", "kill", "kill", "kill-two", "kill-all", "store-kill", "store-kill")
OTHERS = (
    "kill",
    "store-kill",
    "store-hurt",
    "store-hurt",
    "store-cut",
    "pause",
    "long-pause",
    "expire",
    "cut-zookeeper",
    "cut-peers",
    "isolate",
    "slow-peers",
    "reset",
)


def rounds(seed: int, scene: Scene, kills: Sequence[str] = KILLS, others: Sequence[str] = OTHERS) -> Iterator[Round]:
    """Draw rounds without end; equal arguments, equal rounds."""
    chance = random.Random(f"{seed}/shared")
    number = 0
    while True:
        number += 1
        kinds = [chance.choice(kills), *(chance.choice(others) for _ in range(chance.choice(EXTRA)))]
        strikes = [draw_strike(chance, scene, kind, DRAWS) for kind in kinds]
        strikes = [replace(each, after_s=chance.uniform(0, 1.5)) for each in strikes]
        yield Round(number, chance.uniform(0, QUIET_S_MAX), tuple(strikes), chance.random() < CALM_SHARE)
