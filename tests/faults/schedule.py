"""What is hurt, when, and for how long: a pure function of a seed.

A run is a sequence of *rounds*; a round is one to three *strikes* that overlap.  Every strike is healed at the end of its round
at the latest, and strikes of one round may hurt the same process: a replica that is cut off may be killed meanwhile.  What a
seed can't know (who leads the ensemble, which session a replica has) is looked up when a strike happens, and printed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

STRIKES = (1, 1, 1, 2, 2, 3)
"""How many strikes a round has, drawn from these."""

QUIET_S_MAX = 0.5
"""Longest time between two rounds, and between the begin of a round and a strike of it, in seconds."""

CALM_SHARE = 0.6
"""So many of the rounds wait, at their end, until every replica serves again."""

UP, DOWN, BOTH = "up", "down", "both"


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault.

    Attributes
    ----------
    kind
        Its name; one of `KINDS`.
    after_s, hold_s
        When it begins, from the begin of the round, and how long it lasts, in seconds.
    targets
        Replicas or servers.
    way
        Of a link: ``up`` (from the source of the link to its target), ``down`` or ``both``.  Between two servers: from the
        first target to the second, or, of one that is isolated or slow, from it to the others.
    amount
        Delay in seconds, or the share of operations that fail.
    drops
        Whether what a cut link holds is lost in the end, instead of coming late.
    seed
        For choices that depend on what is there.
    """

    kind: str
    after_s: float
    hold_s: float
    targets: tuple[str, ...] = ()
    way: str = BOTH
    amount: float = 0.0
    drops: bool = False
    seed: int = 0

    def __str__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Return it in a few words."""
        what = [self.kind, *self.targets]
        if self.way != BOTH:
            what.append(self.way)
        if self.amount:
            what.append(f"{self.amount:.2f}")
        if self.drops:
            what.append("drops")
        return f"{' '.join(what)} (+{self.after_s:.2f} s, {self.hold_s:.2f} s)"


@dataclass(frozen=True, slots=True)
class Round:
    """Strikes that overlap, the pause before them, and whether to wait for calm after them."""

    number: int
    quiet_s: float
    strikes: tuple[Strike, ...]
    calm: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to be hurt.

    Attributes
    ----------
    replicas, servers
        Names.
    session_timeout_s
        How long a replica's session outlives it, in seconds.
    """

    replicas: tuple[str, ...]
    servers: tuple[str, ...]
    session_timeout_s: float


Fields: TypeAlias = dict[str, object]
Draw: TypeAlias = Callable[[random.Random, Scene], Fields]


def _one(chance: random.Random, scene: Scene) -> tuple[str, ...]:
    return (chance.choice(scene.replicas),)


def _some(number: int, longest_s: float, shortest_s: float = 0.0) -> Draw:
    """Draw so many replicas for at most so long."""

    def draw(chance: random.Random, scene: Scene) -> Fields:
        targets = chance.sample(scene.replicas, min(number, len(scene.replicas)))
        return {"targets": tuple(targets), "hold_s": chance.uniform(shortest_s, longest_s)}

    return draw


def _servers(number: int, longest_s: float) -> Draw:
    def draw(chance: random.Random, scene: Scene) -> Fields:
        targets = chance.sample(scene.servers, min(number, len(scene.servers)))
        return {"targets": tuple(targets), "hold_s": chance.uniform(0.0, longest_s)}

    return draw


def _leader(shortest_s: float, longest_s: float) -> Draw:
    return lambda chance, _: {"hold_s": chance.uniform(shortest_s, longest_s)}


def _long(draw: Draw) -> Draw:
    """Let it last so long that a session ends."""

    def longer(chance: random.Random, scene: Scene) -> Fields:
        fields = draw(chance, scene)
        return {**fields, "hold_s": scene.session_timeout_s * chance.uniform(1.2, 2.0)}

    return longer


def _way(chance: random.Random) -> str:
    return chance.choice((BOTH, BOTH, UP, DOWN))


def _cut(longest_s: float) -> Draw:
    def draw(chance: random.Random, scene: Scene) -> Fields:
        return {
            "targets": _one(chance, scene),
            "hold_s": chance.uniform(0.1, longest_s),
            "way": _way(chance),
            "drops": chance.random() < 0.5,
        }

    return draw


def _cut_server(chance: random.Random, scene: Scene) -> Fields:
    fields = _cut(4.0)(chance, scene)
    return {**fields, "targets": (*_one(chance, scene), chance.choice(scene.servers))}


def _cut_peers(chance: random.Random, scene: Scene) -> Fields:
    fields = _cut(6.0)(chance, scene)
    return {**fields, "targets": tuple(chance.sample(scene.replicas, 2))}


def _cut_ensemble(chance: random.Random, scene: Scene) -> Fields:
    fields = _cut(8.0)(chance, scene)
    return {**fields, "targets": tuple(chance.sample(scene.servers, min(2, len(scene.servers))))}


def _one_server(draw: Draw) -> Draw:
    return lambda chance, scene: {**draw(chance, scene), "targets": (chance.choice(scene.servers),)}


def _slow(delay_s: float) -> Draw:
    def draw(chance: random.Random, scene: Scene) -> Fields:
        return {
            "targets": _one(chance, scene),
            "hold_s": chance.uniform(0.5, 4.0),
            "way": _way(chance),
            "amount": chance.uniform(0.01, delay_s),
        }

    return draw


def _lag(chance: random.Random, scene: Scene) -> Fields:
    """Draw a replica whose server of the ensemble hears its leader late, or not for a while."""
    late_s = chance.choice((0.0, 0.0, 0.1, 0.5))
    return {"targets": _one(chance, scene), "hold_s": chance.uniform(0.5, 4.5), "amount": late_s, "way": UP}


def _failing(chance: random.Random, scene: Scene) -> Fields:
    share = chance.choice((0.05, 0.3, 1.0))
    return {"targets": _one(chance, scene), "hold_s": chance.uniform(0.2, 4.0), "amount": share}


KINDS: Mapping[str, Draw] = {
    # processes
    "kill": _some(1, 0.4),
    "kill-two": _some(2, 0.4),
    "kill-all": _some(99, 0.4),
    "pause": _some(1, 3.0),
    "long-pause": _long(_some(1, 0.0)),
    # sessions
    "expire": _some(1, 0.0),
    # the ensemble
    "zk-kill": _servers(1, 2.0),
    "zk-kill-most": _servers(2, 2.0),
    "zk-kill-all": _servers(99, 1.0),
    "zk-kill-leader": _leader(0.0, 3.0),
    "zk-pause-leader": _leader(6.0, 8.0),
    "cut-ensemble": _cut_ensemble,
    "isolate-server": _one_server(_cut(8.0)),
    "slow-ensemble": _one_server(_slow(0.3)),
    "lag-follower": _lag,
    # links
    "cut-zookeeper": _cut(3.0),
    "long-cut-zookeeper": _long(_cut(0.0)),
    "cut-server": _cut_server,
    "cut-peers": _cut_peers,
    "cut-client": _cut(7.0),
    "isolate": _cut(6.0),
    "slow-zookeeper": _slow(0.3),
    "slow-peers": _slow(0.5),
    "reset": _some(1, 0.0),
    "refuse": _some(1, 3.0),
    # disks
    "disk-full": _some(1, 4.0),
    "disk-failing": _failing,
    "corrupt": _some(1, 0.0),
}
"""Every fault, and how its particulars are drawn."""

RECORDED = tuple(sorted(KINDS))
"""Those of runs whose histories are judged."""

USUAL = tuple(sorted(set(KINDS) - {"lag-follower"}))
"""Those of runs whose rows are counted: their seeds are older than the others."""


def rounds(seed: int, scene: Scene, kinds: Sequence[str] = USUAL) -> Iterator[Round]:
    """Draw rounds without end; equal arguments, equal rounds."""
    chance = random.Random(f"{seed}/schedule")
    number = 0
    while True:
        number += 1
        count = chance.choice(STRIKES)
        strikes = tuple(draw_strike(chance, scene, chance.choice(kinds)) for _ in range(count))
        yield Round(number, chance.uniform(0, QUIET_S_MAX), strikes, chance.random() < CALM_SHARE)


def draw_strike(chance: random.Random, scene: Scene, kind: str, draws: Mapping[str, Draw] = KINDS) -> Strike:
    """Draw one strike of a kind; `draws` says how its particulars are drawn."""
    drawn = draws[kind](chance, scene)
    common: Fields = {"after_s": chance.uniform(0, QUIET_S_MAX), "seed": chance.getrandbits(32)}
    return Strike(kind, **{**common, **drawn})  # type: ignore[arg-type]  # each kind draws fields of the right types
