"""What can be wrong with one replica of a table: whether it is there, what state it is in, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.client.admin.doctor_finding import DoctorFinding, Severity, count, listed, span
from replitree.client.admin.doctor_state import ReplicaState, TableState
from replitree.client.transport.standing import ReplicaMark, entries_between
from replitree.protocol.core.parts import parse_part

LAG_NOTICE = 100
LAG_WARNING = 1_000
"""Entries that an active replica has not executed."""

POSTPONED_NOTICE_S = 10.0
POSTPONED_WARNING_S = 300.0
"""For how long an entry was tried in vain."""

MOVE_TRIES_NOTICE = 5
MOVE_TRIES_WARNING = 10
"""How often a part was to be moved in vain: after about half a minute, and a few minutes."""

LOST_TOLD_MAX = 10
"""Lost parts for which the doctor says what to insert again."""

OLD_NOTICE_S = 3_600.0
OLD_BYTES_NOTICE = 1 << 30
"""From when on readers who hold old parts are worth a word."""


def examine_replica(table: TableState, replica: ReplicaState) -> Iterator[DoctorFinding]:
    """Judge one replica of a table."""
    if replica.mark is ReplicaMark.DROPPED:
        yield DoctorFinding(
            Severity.WARNING,
            "half-dropped-replica",
            f"{replica.name} was being taken out of {table.name}, and that was cut off half-way",
            f"replitree drop-replica {table.name} {replica.name} --yes finishes it; a server of this name that starts does, "
            "too, and joins as a new replica",
            table.name,
            replica.name,
        )
        return
    if not replica.active:
        severity, code, text, advice = _away(table, replica)
        yield DoctorFinding(severity, code, text, advice, table.name, replica.name)
    elif not replica.answers:
        text = f"{replica.name} has a session, but does not answer: {replica.problem}"
        advice = "was it killed or cut off a moment ago? Its session ends by itself; otherwise look at its process and its log"
        yield DoctorFinding(Severity.WARNING, "unreachable", text, advice, table.name, replica.name)
    else:
        yield from _state(table, replica)
        yield from _waiting(table, replica)
    yield from _lacking(table, replica)
    yield from _lost(table, replica)
    leased_bytes = replica.old_bytes - replica.tagged_bytes - replica.feed_bytes - replica.consumer_bytes
    if replica.leases and (replica.old_since_s or 0.0) >= OLD_NOTICE_S and leased_bytes >= OLD_BYTES_NOTICE:
        yield DoctorFinding(
            Severity.NOTICE,
            "old-parts",
            f"{count(replica.leases, 'lease')} on {replica.name} keep up to {count(replica.old_parts, 'part')} that left "
            f"{table.name} on disk ({replica.old_bytes / (1 << 30):,.1f} GiB), the oldest for "
            f"{span(replica.old_since_s or 0.0)}",
            "end reads that take that long, or leave it: the room comes back when they end",
            table.name,
            replica.name,
        )
    if replica.tagged_bytes >= OLD_BYTES_NOTICE:
        yield DoctorFinding(
            Severity.NOTICE,
            "tagged-parts",
            f"tags keep {count(replica.tagged_parts, 'part')} that left {table.name} on the disk of {replica.name}"
            f" ({replica.tagged_bytes / (1 << 30):,.1f} GiB)",
            f"replitree table tags {table.name} lists the tags; replitree table delete-tag deletes one that is not needed",
            table.name,
            replica.name,
        )
    if replica.feed_bytes >= OLD_BYTES_NOTICE:
        yield DoctorFinding(
            Severity.NOTICE,
            "feed-large",
            f"the change feed keeps {count(replica.feed_parts, 'part')} that left {table.name} on the disk of {replica.name}"
            f" ({replica.feed_bytes / (1 << 30):,.1f} GiB)",
            f"replitree table feed {table.name} 12h keeps 12 hours of it; readers that are further behind then begin anew",
            table.name,
            replica.name,
        )
    yield from _moving(table, replica)


# --- is it there --------------------------------------------------------------------------------------------------------------


def _away(table: TableState, replica: ReplicaState) -> tuple[Severity, str, str, str]:
    """Say what it means that a replica has no session: code, text and advice."""
    name, behind = replica.name, entries_between(replica.pointer, table.log_tail)
    server = f"replitree server --config SERVER.TOML (below a folder of `replitree up`: {name}/server.toml)"
    start = f"start its server: {server}; if it will never come back: replitree drop-replica {table.name} {name} --yes"
    if any(other.mark is ReplicaMark.GOOD for other in table.replicas):
        recovers = "when it starts it recovers from another replica by itself; "
    else:
        recovers = ""
    if replica.mark is ReplicaMark.LOST:
        text = f"{name} is away and lost: entries that it had not pulled are gone from the log of {table.name}"
        return Severity.WARNING, "lost", text, recovers + start
    if replica.mark is ReplicaMark.HALF_BUILT:
        text = (
            f"{name} is away and half-built: it went away while it took over the state of {table.name} from another one"
        )
        return Severity.WARNING, "half-built", text, recovers + start
    text = f"{name} is away, {count(behind, 'entry', 'entries')} of {table.name} behind"
    if table.keep_max is not None:
        text += f"; it will be marked lost when it is more than {table.keep_max:,} behind"
    return Severity.WARNING, "inactive", text, start


# --- how it is ----------------------------------------------------------------------------------------------------------------

_STATES: dict[str, tuple[Severity, str]] = {
    "starting": (Severity.NOTICE, "wait"),
    "recovering": (
        Severity.NOTICE,
        "wait: it goes on by itself, also after a restart; the reason says what it waits for",
    ),
    "read_only": (Severity.WARNING, "remove the cause that it names; it goes on by itself"),
    "halted": (Severity.CRITICAL, "upgrade it; nothing was lost"),
    "stopped": (Severity.WARNING, "one process for each name: stop one of them, or start it again"),
}


def _state(table: TableState, replica: ReplicaState) -> Iterator[DoctorFinding]:
    name, state = replica.name, replica.state
    if state != "active":
        severity, advice = _STATES.get(state, (Severity.WARNING, "look at its log"))
        reason = f": {replica.reason}" if replica.reason else ""
        text = f"{name} is {state.replace('_', '-')} in {table.name}{reason}"
        yield DoctorFinding(severity, state.replace("_", "-"), text, advice, table.name, name)
    elif replica.mark is not ReplicaMark.GOOD:
        text = f"{name} is marked {replica.mark.value} in {table.name}, though it serves"
        yield DoctorFinding(Severity.NOTICE, "lost", text, "a moment after a recovery this is normal", table.name, name)
    to_pull = entries_between(replica.pointer, table.log_tail)
    lag = to_pull + replica.queue
    if lag >= LAG_NOTICE:
        severity = Severity.WARNING if lag >= LAG_WARNING else Severity.NOTICE
        text = (
            f"{name} lags {count(lag, 'entry', 'entries')} behind in {table.name}: "
            f"{to_pull:,} to pull, {replica.queue:,} in its queue"
        )
        advice = "wait when it has just come back; otherwise see what its queue waits for, its disk and its network"
        yield DoctorFinding(severity, "lag", text, advice, table.name, name)


def _waiting(table: TableState, replica: ReplicaState) -> Iterator[DoctorFinding]:
    long = [each for each in replica.postponed if (each.since_s or 0.0) >= POSTPONED_NOTICE_S]
    if not long:
        return
    oldest = max(long, key=lambda each: (not each.is_told, each.since_s or 0.0))
    waits = span(oldest.since_s or 0.0)
    others = f" ({count(len(long) - 1, 'other entry', 'other entries')} wait as well)" if len(long) > 1 else ""
    yield DoctorFinding(
        Severity.WARNING if (oldest.since_s or 0.0) >= POSTPONED_WARNING_S and not oldest.is_told else Severity.NOTICE,
        "postponed",
        f"{replica.name} could not execute entry {oldest.index} of {table.name} for {waits}, in "
        f"{count(oldest.tries, 'try', 'tries')}: {oldest.reason}{others}",
        "it is tried again and again: remove the cause, or start the replica that has what it waits for",
        table.name,
        replica.name,
    )


# --- what is on its disk ------------------------------------------------------------------------------------------------------


def _lacking(table: TableState, replica: ReplicaState) -> Iterator[DoctorFinding]:
    lost = [each.part for each in replica.lacking if not each.holders]
    fetchable = [each.part for each in replica.lacking if each.holders]
    if lost:
        text = (
            f"{count(len(lost), 'part')} of {table.name} broken or missing on {replica.name}, and no other replica has "
            f"the rows: {listed(lost)}"
        )
        # Folders that look like copies may be a mistake of an operator that can be put right.
        copies = {f"{folder} ({why})" for each in replica.unusable_copies.values() for folder, why in each.items()}
        if copies:
            text += f"; on its disk these look like copies and were not used: {listed(sorted(copies))}"
        # What brings parts back that no replica has whole.
        away = [other.name for other in table.replicas if not other.active and other.mark is not ReplicaMark.DROPPED]
        steps = [f"start the server of {listed(away)}, which may have them"] if away else []
        if not replica.answers and replica.name not in away:
            steps.append(f"see why {replica.name} does not answer")
        if replica.moving is not None:
            steps.append(
                f"replitree fsck {table.name} --repair lets every replica create missing objects again from its copies"
            )
        steps.append(
            "put a copy of the part (manifest.json and its data files, in a folder of any name) below detached/ in the folder"
            f" of {table.name} on any replica: it is verified and used within 30 s"
        )
        yield DoctorFinding(Severity.CRITICAL, "lost-parts", text, "; or ".join(steps), table.name, replica.name)
    if fetchable:
        holders = sorted({name for each in replica.lacking for name in each.holders})
        yield DoctorFinding(
            Severity.WARNING,
            "broken-parts",
            f"{count(len(fetchable), 'part')} of {table.name} broken or missing on {replica.name}: {listed(fetchable)}; "
            f"{listed(holders)} can send the rows",
            "they are fetched again by themselves; look at that disk: a part rarely breaks alone",
            table.name,
            replica.name,
        )


def _lost(table: TableState, replica: ReplicaState) -> Iterator[DoctorFinding]:
    """Report parts that no replica sends: those that are looked for still, and those that were declared lost."""
    if replica.unavailable:
        part, reason = min(replica.unavailable.items())
        others = (
            f" ({count(len(replica.unavailable) - 1, 'other part')} as well)" if len(replica.unavailable) > 1 else ""
        )
        yield DoctorFinding(
            Severity.WARNING,
            "unavailable-parts",
            f"{replica.name} can't get part {part} of {table.name} from any replica{others}, and it is not given up: {reason}",
            "do what it says; when no replica can have a part, it is declared lost and replaced by an empty one",
            table.name,
            replica.name,
        )
    if replica.declared_lost:
        # Which rows to insert again, and with which token.
        advice: list[str] = []
        for part in sorted(replica.declared_lost)[:LOST_TOLD_MAX]:
            partition, parts = parse_part(part).partition, replica.lost_insert_parts.get(part, 0)
            if parts == 1:
                told = f"{part} was a whole insert: insert it again, its token is free"
            elif parts > 1:
                told = f"{part} was one of {parts} parts of that insert: insert the rows of partition {partition} again"
                told += " with a new token"
            else:
                told = (
                    f"{part} had rows of partition {partition} only: insert what is missing there again with new tokens; the"
                    " tokens of those inserts may still be taken"
                )
            advice.append(told)
        each = listed([f"{part} (entry {index})" for part, index in sorted(replica.declared_lost.items())])
        yield DoctorFinding(
            Severity.WARNING,
            "rows-lost",
            f"{count(len(replica.declared_lost), 'part')} of {table.name} declared lost since {replica.name} started, because "
            f"no replica had the rows: {each}",
            f"{'; '.join(advice)}; this is shown until that server is started again",
            table.name,
            replica.name,
        )


def _moving(table: TableState, replica: ReplicaState) -> Iterator[DoctorFinding]:
    """Judge parts that are to move between the disk and an object store."""
    moves = replica.moving
    if moves is None:
        return
    if moves.problem:
        yield DoctorFinding(
            Severity.WARNING,
            "store-unusable",
            f"{replica.name} does not work by the storage of {table.name}, {moves.storage}: {moves.problem}",
            "let its server reach the store and have its credentials; it goes on by itself",
            table.name,
            replica.name,
        )
    long = [each for each in moves.waiting if each.tries >= MOVE_TRIES_NOTICE]
    if long:
        worst = max(long, key=lambda each: each.tries)
        yield DoctorFinding(
            Severity.WARNING if worst.tries >= MOVE_TRIES_WARNING else Severity.NOTICE,
            "not-moved",
            f"{replica.name} could not move {count(len(long), 'part')} of {table.name} to where {moves.storage} has them; "
            f"{worst.part} in {count(worst.tries, 'try', 'tries')}: {worst.reason}",
            "it is tried again and again: remove the cause",
            table.name,
            replica.name,
        )
