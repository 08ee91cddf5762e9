"""What a seed of a simulated sharded table draws: shards and replicas, clients, commands, moves, and how much goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from replitree_verify.simulation.options import Options, draw_options

OWN_FROM, OWN_SEEDS = 10_000, 0.5
"""In half of the seeds from here on the clients that insert read, too; those before are the runs that they were."""

COMMANDS_FROM, COMMANDS_SEEDS = 20_000, 0.5
"""In half of the seeds from here on mutations come to all shards."""

KINDS_FROM = 30_000
"""In the seeds from here on commands of all kinds come, not only mutations."""

MOVES_FROM = 40_000
"""In the seeds from here on buckets move, and rows are of buckets."""

GROUPS_FROM, GROUPS_MOVES = 50_000, 0.5
"""In the seeds from here on servers have a replica of each shard, and take inserts for all shards by one request, which they
commit in groups.  In half of them buckets move."""

GROUPS_CLIENTS, GROUPS_INSERTS = 4, 6
"""In these seeds there are at least so many clients that insert, with so many inserts each; few of them have a quorum."""


@dataclass(frozen=True, slots=True)
class ShardedOptions:
    """What a seed draws besides the options of any simulated cluster.

    Attributes
    ----------
    shards, replicas
        How many shards, and replicas of each.
    readers, reads
        How many clients read at cuts, and how often each.
    maps
        How often the map changes.
    creators, cuts_off
        How many clients create the table at once, and whether some of them die.
    commits
        Bytes that a commit of the creation may have; 0: each shard is a commit of its own.
    is_dropped
        Whether the table is dropped in the end.
    commands
        How many commands there are.
    moves
        How often an operator begins moves of buckets, or turns them back.
    mover_deaths
        How often a process that carries them on dies.
    """

    shards: int
    replicas: int
    readers: int
    reads: int
    maps: int
    creators: int
    cuts_off: bool
    commits: int
    is_dropped: bool
    commands: int = 0
    moves: int = 0
    mover_deaths: int = 0


def draw_sharded(seed: int, shards: int, replicas: int) -> tuple[Options, ShardedOptions]:
    """Draw the options of a seed; `replicas` of each shard, 0: the seed says.

    What the faults are is drawn as for any table.  What a sharded table does not have yet, or what the checker knows of one
    table only, is left out: commands, rewrites, tags, feeds, lost parts, logs that are cleaned, replicas that come and go.
    """
    random = Random(f"{seed}/sharded {shards}")  # noqa: S311 - repeatable is what it must be
    drawn = draw_options(random, Random(f"{seed}/sharded more"), Random(0), Random(0))  # noqa: S311
    copies = replicas or random.choice((2, 3))
    sharded = ShardedOptions(
        shards=shards,
        replicas=copies,
        readers=random.randint(1, 3),
        reads=random.randint(3, 12),
        maps=random.choice((0, 0, 1, 3)),
        creators=random.randint(1, 2),
        cuts_off=random.random() < 0.5,
        commits=random.choice((0, 512 * 1024)),
        is_dropped=random.random() < 0.5,
    )
    later = Random(f"{seed}/commands {shards}")  # noqa: S311 - repeatable is what it must be
    if seed >= COMMANDS_FROM and later.random() < COMMANDS_SEEDS:
        sharded = replace(sharded, commands=later.randint(1, 6))
    if seed >= MOVES_FROM and (seed < GROUPS_FROM or later.random() < GROUPS_MOVES):
        # The map has moves: nothing else writes it.
        sharded = replace(sharded, maps=0, moves=later.randint(2, 8), mover_deaths=later.choice((0, 1, 4)))
    calm = replace(
        drawn,
        corrupt=0,
        commands=0,
        cleanings=0,
        joins=0,
        leaves=0,
        losses=0,
        rewrites=0,
        replicas=shards * copies,
        quorum=min(drawn.quorum, copies),
        reads=0,
        rolls=random.choice((0, 0, 1, 2)),
    )
    if seed >= GROUPS_FROM:
        calm = replace(
            calm,
            clients=max(GROUPS_CLIENTS, calm.clients),
            inserts=max(GROUPS_INSERTS, calm.inserts),
            quorums=calm.quorums / 4,
        )
    return calm, sharded
