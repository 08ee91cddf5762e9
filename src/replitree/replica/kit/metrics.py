"""The replica's metrics, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from replitree.protocol.core.effects import ClientAnswer, Duplicate, Inserted, MaybeInserted, NotInserted
from replitree.protocol.sharded.moves.progress import MovesProgress

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """Counters and gauges of one server; the label `table` tells its tables apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        one = ("table",)
        self.inserts = Counter(
            "replitree_inserts_total", "Answers to inserts, by outcome", ("table", "outcome"), registry=self.registry
        )
        self.rows = Counter(
            "replitree_inserted_rows_total", "Rows of acknowledged inserts", one, registry=self.registry
        )
        self.groups = Counter("replitree_groups_total", "Group commits", one, registry=self.registry)
        self.insert_s = Histogram(
            "replitree_insert_seconds", "Time to answer an insert", one, buckets=_SECONDS, registry=self.registry
        )
        self.pulled = Counter("replitree_pulled_entries_total", "Log entries pulled", one, registry=self.registry)
        self.executed = Counter(
            "replitree_executed_entries_total", "Queue entries executed", one, registry=self.registry
        )
        self.postponed = Counter(
            "replitree_postponed_entries_total", "Executions that must be tried again", one, registry=self.registry
        )
        self.broken = Counter("replitree_broken_parts_total", "Parts found broken on disk", one, registry=self.registry)
        self.lost = Counter(
            "replitree_lost_parts_total", "Parts declared lost: no replica has their rows", one, registry=self.registry
        )
        self.checked = Counter("replitree_checked_parts_total", "Parts verified on disk", one, registry=self.registry)
        self.refetched = Counter("replitree_refetched_parts_total", "Parts fetched again", one, registry=self.registry)
        self.quorums = Gauge("replitree_waiting_quorums", "Inserts that wait for a quorum", one, registry=self.registry)
        self.queue = Gauge("replitree_queue_entries", "Entries pulled and not executed", one, registry=self.registry)
        self.pointer = Gauge("replitree_log_pointer", "Index of the next entry to pull", one, registry=self.registry)
        self.parts = Gauge("replitree_parts", "Visible parts", one, registry=self.registry)
        self.lacking = Gauge(
            "replitree_lacking_parts",
            "Parts of the table that are broken or gone on this replica now",
            one,
            registry=self.registry,
        )
        self.sent_files = Counter(
            "replitree_sent_files_total",
            "Requests of readers for data files, ranges of them, or their checksums",
            one,
            registry=self.registry,
        )
        self.sent_bytes = Counter(
            "replitree_sent_bytes_total", "Bytes that these requests asked for", one, registry=self.registry
        )
        self.merges = Counter(
            "replitree_proposed_merges_total", "Merges proposed as leader", one, registry=self.registry
        )
        self.leading = Gauge("replitree_leading", "1 while the replica leads", one, registry=self.registry)
        self.making = Gauge("replitree_making_parts", "Parts being merged or mutated", one, registry=self.registry)
        self.old_parts = Gauge(
            "replitree_old_parts", "Parts that left and are still on disk", one, registry=self.registry
        )
        self.old_bytes = Gauge("replitree_old_bytes", "Bytes of these parts", one, registry=self.registry)
        self.packed_parts = Gauge(
            "replitree_packed_parts", "Those of them that are packed", one, registry=self.registry
        )
        self.leases = Gauge("replitree_leases", "Leases held on snapshots", one, registry=self.registry)
        self.epoch = Gauge("replitree_epoch", "Epoch of this activation", one, registry=self.registry)
        self.active = Gauge("replitree_active", "1 while the replica takes inserts", one, registry=self.registry)
        self.moves = MoveMetrics(self.registry)
        self._add_lives()
        self._add_troubles()
        # CPU, memory, open files and start of the process; the version of Python; its garbage collector.
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _add_lives(self) -> None:
        """Add what tells how often a replica activates and recovers, and how its log is cleaned."""
        one = ("table",)
        self.activations = Counter(
            "replitree_activations_total",
            "Activations, by the evidence that asked for them",
            ("table", "evidence"),
            registry=self.registry,
        )
        self.recovering = Gauge(
            "replitree_recovering", "1 while the replica takes over another one's state", one, registry=self.registry
        )
        self.recoveries = Counter("replitree_recoveries_total", "Recoveries finished", one, registry=self.registry)
        self.recovery_s = Gauge(
            "replitree_recovery_seconds", "How long the last recovery took", one, registry=self.registry
        )
        self.log_entries = Gauge(
            "replitree_log_entries",
            "Entries in the log, as the replica that cleans it saw last",
            one,
            registry=self.registry,
        )
        self.cleaned = Counter(
            "replitree_cleaned_entries_total", "Log entries removed by this replica", one, registry=self.registry
        )
        self.cleaned_blocks = Counter(
            "replitree_cleaned_blocks_total", "Deduplication ids removed by this replica", one, registry=self.registry
        )
        self.marked_lost = Counter(
            "replitree_marked_lost_total", "Replicas that this one has marked lost", one, registry=self.registry
        )
        self.cut_questions = Counter(
            "replitree_cut_questions_total",
            "Questions to coordination for the end of a log, or for a write to the clock, by reads at cuts",
            one,
            registry=self.registry,
        )
        self.cut_waits_s = Histogram(
            "replitree_cut_wait_seconds",
            "Time that a read at a cut waited for this replica to execute its log",
            one,
            buckets=_SECONDS,
            registry=self.registry,
        )

    def _add_troubles(self) -> None:
        """Add what alerts compare with the limits of the doctor (`replitree.client.admin.doctor`)."""

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"replitree_{name}", text, ("table",), registry=self.registry)

        self.partition_parts = gauge("partition_parts", "Parts of the partition that has the most")
        self.parts_delay = gauge("parts_delay", "Parts of a partition from which on inserts are slowed down")
        self.parts_max = gauge("parts_max", "Parts of a partition from which on inserts are refused")
        self.postponed_s = gauge(
            "postponed_seconds", "For how long the oldest entry that can't be executed has been tried"
        )
        self.unavailable = gauge(
            "unavailable_parts", "Parts that no replica could send so far, and that are not given up"
        )
        self.declared_lost = gauge(
            "declared_lost_parts", "Parts that this process has seen declared lost: their rows are gone"
        )
        self.merges_paused = gauge("merges_paused", "1 while merges are paused on this replica")
        self.moving_tries = gauge(
            "moving_tries", "Most tries of a part that could not be moved to or from an object store"
        )
        self.store_problem = gauge("store_problem", "1 while the table's object store can't be used from here")
        self.consumers_used = gauge("consumer_used_ratio", "Share of its limits that the slowest consumer has used up")
        self.consumers_expired = gauge("expired_consumers", "Consumers of the change feed whose hold has ended")

    def meter(self, table: str) -> TableMeter:
        """Return the counters of one table's inserts and data files, looked up once."""
        return TableMeter(self, table)

    def forget(self, table: str) -> None:
        """Show nothing of a table any longer: this server does not host it any more."""
        for metric in vars(self).values():
            if isinstance(metric, Counter | Gauge | Histogram):
                metric.remove_by_labels({"table": table})

    def render(self) -> bytes:
        """Return all metrics as text."""
        return generate_latest(self.registry)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """How a server is at this moment.

    Attributes
    ----------
    name, version
        Of the replica, and of replitree.
    clock_s
        The server's clock, in seconds since 1970.
    is_ready
        Whether the tables serve reads, see `Server.ready`.
    silent_s
        Seconds since it heard of coordination.
    log_keep_max
        Entries of a log that stay for replicas that are away.
    disk
        Free bytes, bytes in all, and bytes that are kept in reserve; None: the disk does not say.
    states
        The state of each table.
    """

    name: str
    version: str
    clock_s: float
    is_ready: bool
    silent_s: float
    log_keep_max: int
    disk: tuple[int, int, int] | None
    states: Mapping[str, str]


class ServerGauges(Collector):
    """Gauges of a server whose values are asked for when the metrics are.

    Parameters
    ----------
    ask
        Returns how the server is.
    states
        All states of a table.
    """

    def __init__(self, ask: Callable[[], ServerFacts], states: tuple[str, ...]) -> None:
        self._ask = ask
        self._states = states

    @override
    def collect(self) -> Iterator[Metric]:
        facts = self._ask()
        info = GaugeMetricFamily(
            "replitree_info", "1, with the name of the replica and the version", labels=("replica", "version")
        )
        info.add_metric((facts.name, facts.version), 1)
        yield info
        yield GaugeMetricFamily("replitree_ready", "1 when every table serves reads", facts.is_ready)
        yield GaugeMetricFamily("replitree_clock_seconds", "The server's clock, since 1970", facts.clock_s)
        yield GaugeMetricFamily(
            "replitree_coordination_silent_seconds", "Seconds since coordination was heard", facts.silent_s
        )
        yield GaugeMetricFamily(
            "replitree_log_keep_max", "Entries of a log that stay for replicas that are away", facts.log_keep_max
        )
        if facts.disk is not None:
            for name, value in zip(("free", "size", "reserve"), facts.disk, strict=True):
                yield GaugeMetricFamily(f"replitree_disk_{name}_bytes", f"The disk of the data folder: {name}", value)
        table_states = GaugeMetricFamily("replitree_state", "1 for the state of a table", labels=("table", "state"))
        for table, now in facts.states.items():
            for state in self._states:
                table_states.add_metric((table, state), state == now)
        yield table_states


class MoveMetrics:
    """Gauges of moves of buckets; the label `table` names the sharded table.  Every server that hosts a shard has them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"replitree_moves_{name}", text, ("table",), registry=registry)

        self.buckets = gauge("buckets", "Buckets that have still to move to another shard")
        self.rows = gauge("rows", "Rows that have arrived at their new shard since the moves began")
        self.bytes = gauge("bytes", "Bytes of the files with these rows")
        self.idle_s = gauge("idle_seconds", "Seconds since this server saw the last progress of the moves")
        self.refused = gauge("refused", "Batches refused in a row because their rows differed from those of the source")

    def show(self, table: str, buckets: int, progress: MovesProgress, idle_s: float) -> None:
        """Show how far the moves of a table are; `idle_s`: seconds since the last progress."""
        self.buckets.labels(table).set(buckets)
        self.rows.labels(table).set(progress.rows)
        self.bytes.labels(table).set(progress.arrived_bytes)
        self.idle_s.labels(table).set(idle_s)
        self.refused.labels(table).set(progress.refused.times if progress.refused else 0)

    def ended(self, table: str) -> None:
        """Take note that nothing moves: what there was is not told any longer, but for the number of buckets, 0."""
        for each in (self.rows, self.bytes, self.idle_s, self.refused):
            each.remove(table)
        self.buckets.labels(table).set(0)


class TableMeter:
    """Counts the answers to one table's inserts, and the requests for its data files."""

    def __init__(self, metrics: Metrics, table: str) -> None:
        self._seconds = metrics.insert_s.labels(table)
        self._rows = metrics.rows.labels(table)
        kinds = (Inserted, Duplicate, NotInserted, MaybeInserted)
        self._answers = {kind: metrics.inserts.labels(table, kind.__name__.lower()) for kind in kinds}
        self._sent_files, self._sent_bytes = metrics.sent_files.labels(table), metrics.sent_bytes.labels(table)

    def answered(self, answer: ClientAnswer, rows: int, seconds: float) -> None:
        """Count one answer: its kind, the rows of a fresh insert, and how long it took."""
        self._seconds.observe(seconds)
        self._answers[type(answer)].inc()
        if isinstance(answer, Inserted):
            self._rows.inc(rows)

    def asked_for(self, size: int) -> None:
        """Count a reader's request for so many bytes of a data file, or of its checksums."""
        self._sent_files.inc()
        self._sent_bytes.inc(size)
