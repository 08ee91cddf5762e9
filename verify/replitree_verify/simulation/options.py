"""What a seed draws: the cluster, the load, and which faults there are, how often and how bad (a "swarm").

Every kind of fault is there in about half of the seeds only: a cluster in which everything fails all the time gets nowhere, and
rare things need the others to be absent.  All times are microseconds of virtual time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

MS = 1_000
SECOND = 1_000_000

LOSING_SEEDS = 0.2
"""Share of the seeds in which rows are lost."""

REWRITING_SEEDS = 0.5
"""Share of the seeds with rewrites."""

TAGGING_SEEDS = 0.4
"""Share of the seeds with tags."""

UPKEEP_SEEDS = 0.4
"""Share of the seeds in which leaders and cleaners do all that they do; the others are the runs that they were before."""

STREAM_SEEDS = 0.5
"""Share of the seeds from `STREAMS_FROM` on with streams."""

STREAMS_FROM = 10_000
"""The seeds before it have no streams, and are the runs that they were before there were any."""

FEED_SEEDS = 0.5
"""Share of the seeds from `FEEDS_FROM` on with a change feed, of those whose table lies on disks."""

FEEDS_FROM = 30_000
"""The seeds before it have no feed, and are the runs that they were before there was one."""

DROPPED = 0.5
"""Share of the seeds whose table is dropped in the end."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one seed.

    Attributes
    ----------
    replicas, clients, inserts, partitions, pull_count, group_max
        Sizes: replicas, clients, inserts of each client, partitions of each insert, entries pulled at once, requests of a
        group.
    duration
        How long faults may begin.
    delay, tail, loss
        Mean one-way delay; share of messages that take very long, and share that are lost.
    lag
        How far a coordination server may be behind.
    session_timeout, request_timeout
        When coordination gives a session up; when a process gives a request up.
    disk
        Mean time of an effect on a disk.
    preempt
        Share of effects after which a thread is put off.
    crashes, pauses, cuts, splits, full, corrupt
        How many: processes that die, processes that stand still, links to coordination and links between replicas that are cut,
        disks that fill up, parts that rot.
    doubles
        Share of inserts that a client sends to two replicas at once.
    merges, commands, differing
        How many merges are proposed, and how many mutations, drops, alters and kills are asked for; how many replicas
        make other bytes than the others, and at every try.
    cleanings, absences, joins, leaves
        How often the log is cleaned, with limits of a few entries; how many replicas are away for long, join, are dropped.
    quorums, quorum, patience, give_ups
        Share of inserts with a quorum, and of how many replicas; how long a writer waits for it, and how many open inserts are
        given up by others.
    reads
        How many reads there are, of all levels.
    losses
        How many inserts lose the rows of a part on every disk.
    rewrites
        How many rewrites clients bring; none where rows are lost, or may lie in an object store.
    elects, rolls, forgets, window
        Whether only an elected leader merges; how often the log goes on below a fresh parent, and results that have left are
        forgotten; how many deduplication ids stay, and for how many entries of the log (None: all).
    is_dropped
        Whether the table is dropped in the end.
    tags
        How many tags are made or deleted, while old parts stay on disk until replicas delete them; none where files break, a
        replica is dropped with its disk, or the table lies in an object store.
    streams
        How many clients are streams, whose inserts are numbered batches.
    feeds
        How often readers ask for the change feed; none where there are no tags.
    """

    replicas: int
    clients: int
    inserts: int
    partitions: int
    pull_count: int
    group_max: int
    duration: int
    delay: int
    tail: float
    loss: float
    lag: int
    session_timeout: int
    request_timeout: int
    disk: int
    preempt: float
    crashes: int
    pauses: int
    cuts: int
    splits: int
    full: int
    corrupt: int
    doubles: float
    merges: int
    commands: int
    differing: int
    cleanings: int
    absences: int
    joins: int
    leaves: int
    quorums: float
    quorum: int
    patience: int
    give_ups: int
    reads: int
    losses: int
    rewrites: int
    elects: bool = False
    rolls: int = 0
    forgets: int = 0
    window: tuple[int, int] | None = None
    is_dropped: bool = False
    tags: int = 0
    streams: int = 0
    feeds: int = 0


def draw_options(random: Random, more: Random, losses: Random, rewrites: Random) -> Options:
    """Draw the options of a seed.

    Parameters
    ----------
    random
        Where they come from.
    more
        The same for quorums and reads: a seed without them is the run that it was before there were any.
    losses, rewrites
        The same for lost parts, and for rewrites.
    """

    def swarm(yes: float, no: float = 0) -> float:
        return yes if random.random() < 0.5 else no

    timeout = random.randint(2, 10) * SECOND
    replicas = random.randint(3, 5)
    lost = losses.randint(1, 2) if losses.random() < LOSING_SEEDS else 0
    rewritten = rewrites.randint(1, 12) if rewrites.random() < REWRITING_SEEDS else 0
    return Options(
        replicas=replicas,
        clients=random.randint(1, 4),
        inserts=random.randint(1, 4),
        partitions=random.randint(1, 2),
        pull_count=random.choice((1, 1, 2, 8)),
        group_max=random.choice((1, 2, 4)),
        duration=random.randint(10, 40) * SECOND,
        delay=random.choice((MS // 5, MS, 5 * MS, 20 * MS)),
        tail=swarm(random.uniform(0, 0.1)),
        loss=swarm(random.uniform(0, 0.05)),
        lag=int(swarm(random.choice((10 * MS, 200 * MS, 2 * SECOND)))),
        session_timeout=timeout,
        request_timeout=random.choice((timeout * 2 // 3, SECOND)),
        disk=random.choice((MS // 2, 5 * MS, 50 * MS)),
        preempt=swarm(random.choice((0.02, 0.2))),
        crashes=int(swarm(random.randint(1, 5))),
        pauses=int(swarm(random.randint(1, 3))),
        cuts=int(swarm(random.randint(1, 4))),
        splits=int(swarm(random.randint(1, 4))),
        full=int(swarm(random.randint(1, 3))),
        corrupt=int(swarm(random.randint(1, 2))),
        doubles=swarm(random.uniform(0, 0.5)),
        merges=int(swarm(random.randint(1, 12))),
        commands=int(swarm(random.randint(1, 8))),
        differing=int(swarm(random.randint(1, 2))),
        cleanings=random.choice((0, random.randint(2, 20), random.randint(10, 60))),
        absences=int(swarm(random.randint(1, 4))),
        joins=int(swarm(random.randint(1, 2))),
        leaves=int(swarm(random.randint(1, 3))),
        quorums=more.uniform(0.2, 1.0) if more.random() < 0.6 else 0.0,
        quorum=more.choice((2, 2, replicas // 2 + 1, replicas)),
        patience=more.choice((50 * MS, 500 * MS, 3 * SECOND)),
        give_ups=more.choice((0, 0, 1, 3)),
        reads=more.randint(4, 30) if more.random() < 0.7 else 0,
        losses=lost,
        rewrites=0 if lost else rewritten,
    )


def with_upkeep(options: Options, seed: int) -> Options:
    """Return the options of a seed with streams, with what else leaders and cleaners do, and whether the table is dropped."""
    random = Random(f"{seed}/streams")  # noqa: S311 - repeatable is what it must be
    if seed >= STREAMS_FROM and random.random() < STREAM_SEEDS:
        options = replace(options, streams=random.randint(1, options.clients), inserts=max(2, options.inserts))
    # With this number the rare seeds that tests name draw no upkeep, and are the runs that they were.
    random = Random(f"{seed}/upkeep 558767")  # noqa: S311 - repeatable is what it must be
    does_all, is_dropped = random.random() < UPKEEP_SEEDS, random.random() < DROPPED
    if not does_all:
        return replace(options, is_dropped=is_dropped)
    window = (random.choice((1, 3, 10, 100)), random.choice((3, 20, 1_000)))
    return replace(
        options,
        elects=random.random() < 0.6,
        rolls=random.choice((0, 1, 1, 3)),
        merges=max(options.merges, random.randint(0, 12)),
        forgets=random.choice((0, 4, 16)),
        window=window if random.random() < 0.7 else None,
        cleanings=max(options.cleanings, random.randint(2, 20)),
        is_dropped=is_dropped,
    )


def with_tags(options: Options, random: Random) -> Options:
    """Return the options of a seed with tags, where the files of its parts stay whole."""
    tags = random.randint(1, 8) if random.random() < TAGGING_SEEDS else 0
    return replace(options, tags=0 if options.corrupt or options.losses or options.leaves else tags)


def with_feed(options: Options, seed: int, *, is_local: bool = True) -> Options:
    """Return the options of a seed with a change feed.  It needs old parts, so no file breaks, and no replica is dropped.

    Parameters
    ----------
    options, seed
        As they were drawn without it; seeds before `FEEDS_FROM` have none.
    is_local
        Whether the table lies on disks; in a store it has no feed here.
    """
    random = Random(f"{seed}/feed")  # noqa: S311 - repeatable is what it must be
    if not is_local or seed < FEEDS_FROM or random.random() >= FEED_SEEDS:
        return options
    feeds, named = random.randint(10, 60), random.randint(1, 4)
    return replace(options, feeds=feeds, tags=max(options.tags, named), corrupt=0, losses=0, leaves=0)


def stretched(options: Options, hours: int) -> Options:
    """Return the options of a run of so many virtual hours, with more load and more faults, and slower sessions."""
    return replace(
        options,
        duration=hours * 3600 * SECOND,
        inserts=options.inserts * 4,
        session_timeout=options.session_timeout * 30,
        crashes=options.crashes * 3,
        cuts=options.cuts * 3,
        merges=options.merges * 4,
        commands=options.commands * 2,
        cleanings=options.cleanings * 6,
        absences=options.absences * 3,
        leaves=options.leaves * 2,
        rewrites=options.rewrites * 4,
        reads=options.reads * 4,
        forgets=options.forgets * 4,
        tags=options.tags * 4,
        feeds=options.feeds * 4,
    )
