"""What can be wrong with a table: its log, who leads, its partitions, its mutations, and whether it can be used at all."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.client.admin.doctor_finding import DoctorFinding, Severity, count, listed, span
from replitree.client.admin.doctor_state import TableState
from replitree.client.transport.standing import ReplicaMark, entries_between
from replitree.protocol.core.layout import PARENT_ENTRIES
from replitree.protocol.propose.roll_over import NUMBERS_LEFT
from replitree.protocol.sharded.places import shard_number, sharded_name
from replitree.storage.sql.mutation import as_statement

LOG_SLACK = 2
"""A log may be this many times as long as what it keeps for stragglers before a leader should have cleaned it."""

BLOCKS_NOTICE = 100_000
RESULTS_NOTICE = 100_000
QUORUMS_NOTICE = 1_000
"""Nodes under `blocks`, `results` and `quorum/status`: more than cleaning should leave."""

MUTATION_TRIES = 12
"""From so many tries on a mutation is called stuck; the pauses between them double, so that is about a minute."""

CONSUMER_USED = 0.5
"""From this share of its limits on a consumer of the feed is behind."""

NUMBERS_LEFT_MIN = NUMBERS_LEFT // 2
"""Before so few of the 31-bit numbers of a parent are left, a leader should have let the log go on below a new one."""


def examine_table(table: TableState) -> Iterator[DoctorFinding]:
    """Judge the state of a table as a whole."""
    if table.problem:
        yield DoctorFinding(
            Severity.CRITICAL,
            "table-unreadable",
            f"table {table.name} can't be judged: {table.problem}",
            "upgrade this replitree when it is the older one",
            table.name,
        )
    elif table.dropping:
        names = listed([replica.name for replica in table.replicas])
        whole = sharded_name(table.name)
        again = (
            f"replitree shard remove {whole} --shard {shard_number(table.name)}"
            if table.is_removed_shard
            else f"replitree table drop {whole} --yes"
        )
        yield DoctorFinding(
            Severity.WARNING,
            "half-dropped-table",
            f"the drop of {table.name} was begun and is not finished; replicas that have not left it: {names}",
            f"{again} finishes it",
            table.name,
        )
    else:
        yield from _usable(table)
        yield from _log(table)
        yield from _leader(table)
        yield from _parts(table)
        yield from _feed(table)
        yield from _consumers(table)
        yield from _expiry(table)
        for view in table.open_backfills:
            yield DoctorFinding(
                Severity.NOTICE,
                "backfill-open",
                f"the rows from before materialised view {view} of {sharded_name(table.name)} are not in its target",
                "wait if the backfill is under way, or begin it again:"
                f" replitree view backfill {sharded_name(table.name)} {view}",
                table.name,
            )
        for code, number, most, what in (
            ("many-blocks", table.blocks, BLOCKS_NOTICE, "ids of inserts"),
            ("many-results", table.results, RESULTS_NOTICE, "results of merges"),
            ("many-quorums", table.quorums, QUORUMS_NOTICE, "open quorum inserts"),
        ):
            if number >= most:
                text = f"coordination remembers {number:,} {what} of {table.name}"
                advice = "a replica that leads cleans them: see whether one leads, and its log"
                yield DoctorFinding(Severity.NOTICE, code, text, advice, table.name)
        for mutation in table.mutations:
            if mutation.reason and mutation.tries >= MUTATION_TRIES:
                what, where = as_statement(mutation.command, table.name), listed(mutation.replicas)
                yield DoctorFinding(
                    Severity.WARNING,
                    "mutation-stuck",
                    f"mutation {mutation.index} of {table.name} ({what}) does not progress on {where} after "
                    f"{count(mutation.tries, 'try', 'tries')}, {count(mutation.parts_left, 'part')} left: {mutation.reason}",
                    f"remove the cause, or give the mutation up: replitree table kill-mutation {table.name} {mutation.index}",
                    table.name,
                )


# --- can it be used -----------------------------------------------------------------------------------------------------------


def _usable(table: TableState) -> Iterator[DoctorFinding]:
    replicas = tuple(replica for replica in table.replicas if replica.mark is not ReplicaMark.DROPPED)
    if not replicas:
        text = f"{table.name} has no replica: no client can insert or read"
        yield DoctorFinding(Severity.CRITICAL, "no-replica", text, "start a server that hosts it", table.name)
        return
    if table.restoring:
        yield DoctorFinding(
            Severity.CRITICAL,
            "restoring",
            f"{table.name} is being restored from the disk of {table.restoring}, and that is not finished: no client can "
            "insert or read",
            f"wait, or, if it was cut off, do it again there, with the server stopped: "
            f"replitree restore {sharded_name(table.name)} --config FILE --yes",
            table.name,
        )
    elif all(replica.mark is not ReplicaMark.GOOD for replica in replicas):
        # A lost replica has a state of its own; a half-built one has only what it had copied so far.
        best = max(replicas, key=lambda replica: (replica.mark is ReplicaMark.LOST, replica.pointer, replica.parts))
        half = " --half-built" if best.mark is ReplicaMark.HALF_BUILT else ""
        missed = entries_between(best.pointer, table.log_first)
        each = "; ".join(
            f"{r.name} ({r.mark.value}) up to {r.pointer:,} with {count(r.parts, 'part')}" for r in replicas
        )
        yield DoctorFinding(
            Severity.CRITICAL,
            "all-lost",
            f"all replicas of {table.name} are lost, so none can recover from another one: {each}",
            f"choose the one whose state is to be the table's: replitree recover {table.name} --from {best.name}{half} --yes; "
            f"that one has missed {count(missed, 'entry', 'entries')} for good",
            table.name,
        )
    if not any(replica.serves for replica in replicas):
        yield DoctorFinding(
            Severity.CRITICAL,
            "no-replica-serves",
            f"no replica of {table.name} takes inserts; what each of them says is below",
            "mend one of them first",
            table.name,
        )
    if len(replicas) == 1:
        text = f"{table.name} has one replica only, {replicas[0].name}: its rows are on one disk"
        yield DoctorFinding(Severity.NOTICE, "one-replica", text, "start a server with another name", table.name)


# --- the log ------------------------------------------------------------------------------------------------------------------


def _log(table: TableState) -> Iterator[DoctorFinding]:
    length = entries_between(table.log_first, table.log_tail)
    least, most = table.keep_min, table.keep_max
    left = PARENT_ENTRIES - table.log_tail % PARENT_ENTRIES
    if left < NUMBERS_LEFT_MIN:
        yield DoctorFinding(
            Severity.WARNING,
            "log-numbers",
            f"the log of {table.name} has {left:,} of its 31-bit numbers left, and has not gone on below a new parent",
            "a replica that leads does that; see whether one leads, and its log: when they are used up, no client can insert",
            table.name,
        )
    if least is None or most is None or length <= LOG_SLACK * max(least, 1):
        return
    # The log is also kept for an active replica that recovers, which is marked lost meanwhile.
    kept = (r for r in table.replicas if r.mark is ReplicaMark.GOOD or (r.active and r.mark is not ReplicaMark.DROPPED))
    holders = sorted(kept, key=lambda replica: (replica.pointer, replica.name))
    if holders and entries_between(table.log_first, holders[0].pointer) <= least:
        holder = holders[0]
        behind = entries_between(holder.pointer, table.log_tail)
        entries = count(length, "entry", "entries")
        text = f"the log of {table.name} keeps {entries} for {holder.name}, which has {behind:,} of them still to pull"
        severity = Severity.NOTICE
        if holder.active:
            advice = f"nothing is removed that an active replica needs; see what {holder.name} waits for"
            severity = Severity.WARNING if length > LOG_SLACK * (most or length) else Severity.NOTICE
        else:
            advice = f"it is marked lost when it is more than {most:,} behind, and the entries go"
        yield DoctorFinding(severity, "log-held", text, advice, table.name, holder.name)
    elif length > LOG_SLACK * most:
        yield DoctorFinding(
            Severity.WARNING,
            "log-not-cleaned",
            f"the log of {table.name} has {count(length, 'entry', 'entries')}, most of them are not needed, and they stay",
            "a replica that leads cleans it: see whether one leads, and its log lines of cleaning",
            table.name,
        )


# --- merges, partitions, mutations --------------------------------------------------------------------------------------------


def _leader(table: TableState) -> Iterator[DoctorFinding]:
    serving = [replica for replica in table.replicas if replica.serves]
    paused = [replica.name for replica in serving if replica.merges_paused]
    if serving and len(paused) == len(serving):
        yield DoctorFinding(
            Severity.WARNING,
            "merges-paused",
            f"merges of {table.name} are paused on every replica that serves: parts pile up, and no replica leads",
            f"replitree table resume-merges {table.name}",
            table.name,
        )
    elif serving and not table.leaders:
        yield DoctorFinding(
            Severity.WARNING,
            "no-leader",
            f"no replica leads {table.name}: no merges are chosen and the log is not cleaned",
            'a moment after a start this is normal; otherwise let one replica have merge = "self" in its configuration, and '
            "look for lines of the leader in the replicas' logs",
            table.name,
        )
    elif paused:
        text = f"merges of {table.name} are paused on {listed(paused)}"
        advice = f"replitree table resume-merges {table.name}"
        yield DoctorFinding(Severity.NOTICE, "merges-paused", text, advice, table.name)


def _feed(table: TableState) -> Iterator[DoctorFinding]:
    serving = [replica for replica in table.replicas if replica.serves]
    lacking = {replica.name: replica.feed_missing for replica in serving if replica.feed_missing}
    if not lacking:
        return
    lacks = listed([f"{count(number, 'part')} on {name}" for name, number in lacking.items()])
    text = f"the change feed of {table.name} lacks {lacks}"
    if len(lacking) < len(serving):
        advice = (
            "readers of the feed ask another replica; it fetches them from there, unless the table has an object store"
        )
        yield DoctorFinding(Severity.NOTICE, "feed-incomplete", text, advice, table.name)
    else:
        yield DoctorFinding(
            Severity.WARNING,
            "feed-incomplete",
            f"{text}: no replica that serves has all of it, and a reader that stands before them hears OffsetExpired",
            "start the replicas that are away, which may have them; otherwise such a reader begins anew with a snapshot",
            table.name,
        )


def _consumers(table: TableState) -> Iterator[DoctorFinding]:
    seen = [each for replica in table.replicas for each in replica.consumers]
    for name in sorted({each.name for each in seen}):
        # A mark stays; of what the replicas keep for it the most counts.
        worst = max((each for each in seen if each.name == name), key=lambda each: (bool(each.expired), each.used))
        if worst.expired:
            yield DoctorFinding(
                Severity.WARNING,
                "consumer-expired",
                f"the hold of consumer {name} of {table.name} has ended at {worst.index}, because {worst.expired}",
                f"drop it (replitree consumers drop {sharded_name(table.name)} {name}), and let its reader begin anew with a"
                " snapshot",
                table.name,
            )
        elif worst.used >= CONSUMER_USED:
            yield DoctorFinding(
                Severity.WARNING,
                "consumer-behind",
                f"consumer {name} of {table.name} stands at {worst.index} and has not moved for {span(worst.idle_s)} of"
                f" {span(worst.hold_s)}; {worst.bytes / (1 << 30):,.1f} of {worst.bytes_max / (1 << 30):,.1f} GiB are kept"
                " for it",
                "let its reader go on, before its hold ends and what it has not read is deleted; or drop it",
                table.name,
            )


def _expiry(table: TableState) -> Iterator[DoctorFinding]:
    told = {replica.name: replica.expiry for replica in table.replicas if replica.serves and replica.expiry is not None}
    # Without a reason a replica removes rows, or has nothing to remove.
    if not told or not all(each.reason for each in told.values()):
        return
    leader = table.leaders[0] if table.leaders else ""
    if leader in told:
        reason, advice = told[leader].reason, "remove the cause; until then these rows are shown, and take room"
        # A follower says that another replica leads: the leader has just begun, and says so at its next look.
        if "leads, and removes them" in reason:
            return
    else:
        reason = "no replica leads"
        advice = (
            f"replitree table resume-merges {sharded_name(table.name)}, if merges are paused; see which replica leads"
        )
    yield DoctorFinding(
        Severity.NOTICE,
        "ttl-idle",
        f"rows of {table.name} that are past its ttl are not removed: {reason}",
        advice,
        table.name,
    )


def _parts(table: TableState) -> Iterator[DoctorFinding]:
    parts = table.partition_parts
    has = f"partition {table.partition} of {table.name} has {count(parts, 'part')}"
    advice = (
        "insert larger blocks, into fewer partitions; look whether merges are under way (replitree status) and with what "
        f"reason they wait; replitree optimize {table.name} merges now"
    )
    if parts >= table.parts_max:
        text = f"{has}: inserts into it are refused from {table.parts_max:,} on"
        yield DoctorFinding(Severity.CRITICAL, "too-many-parts", text, advice, table.name)
    elif parts >= table.parts_delay:
        text = f"{has}: inserts into it are slowed down, and refused from {table.parts_max:,} on"
        yield DoctorFinding(Severity.WARNING, "too-many-parts", text, advice, table.name)
    elif parts >= max(2, table.parts_delay // 2):
        text = f"{has}; from {table.parts_delay:,} on inserts into it are slowed down"
        yield DoctorFinding(Severity.NOTICE, "many-parts", text, advice, table.name)
