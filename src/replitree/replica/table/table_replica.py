"""One table on one replica: its life from activation to the end, and the threads that do its work.

The life thread activates the replica (see `protocol.state.start` for the order), then waits for trouble: a lost session, an
epoch that was taken over.  What the replica may do meanwhile is its `Availability`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from replitree.errors import ReplicaBusy, ReplicaReplaced, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import table_drop
from replitree.protocol.program.stages import Then
from replitree.protocol.shares.sharing import with_shares_once_open
from replitree.protocol.state.registration import registered_by
from replitree.replica.insert.appends import Appends
from replitree.replica.insert.insert_writer import InsertWriter
from replitree.replica.insert.inserts import Inserts
from replitree.replica.insert.joint_groups import JointGroups
from replitree.replica.insert.joint_inserts import JointInserts
from replitree.replica.insert.prepared_rows import PreparedRows
from replitree.replica.insert.quorums import Quorums
from replitree.replica.insert.streams import ReplicaStreams
from replitree.replica.insert.view_writer import ViewWriter
from replitree.replica.kit.definitions import Definitions
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.parts.checker import Checker
from replitree.replica.parts.commands import Commands
from replitree.replica.parts.expiry import Expiry
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.making import Maker
from replitree.replica.parts.merges import Merges
from replitree.replica.parts.moving import Moves
from replitree.replica.parts.prepared import PreparedMerges
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.availability import Availability, State
from replitree.replica.perform.context import LocalParts, ServerContext, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.end_of_log import EndOfLog
from replitree.replica.perform.exchange import Exchange
from replitree.replica.perform.look_ahead import LookAhead
from replitree.replica.perform.progress import Lane, Progress
from replitree.replica.perform.pull_signal import PullSignal
from replitree.replica.perform.runner import Performer
from replitree.replica.perform.store_performer import StorePerformer
from replitree.replica.perform.versions import Versions
from replitree.replica.table.activation import Activation
from replitree.replica.table.cleaner import Cleaner
from replitree.replica.table.consuming import Consuming
from replitree.replica.table.cuts import Cuts
from replitree.replica.table.feeds import Feeds
from replitree.replica.table.leader import Leader
from replitree.replica.table.lost_parts import LostParts, PartSources
from replitree.replica.table.maintenance import Keepers, Maintenance
from replitree.replica.table.mending import Mending
from replitree.replica.table.mover import Mover
from replitree.replica.table.recovery import Recovery
from replitree.replica.table.report import measure, status_of
from replitree.replica.table.rewrites import Rewrites
from replitree.replica.table.snapshots import Snapshots
from replitree.replica.table.tagging import Naming, Tagging
from replitree.replica.table.views import ReplicaViews, check_change
from replitree.replica.table.workers import Executor, Puller
from replitree.replica.uploads.uploads import Uploads
from replitree.storage.disk.store import PartStore
from replitree.storage.schema.definition import TableDefinition

T = TypeVar("T")

RETRY_S_MIN = 0.2
RETRY_S_MAX = 5.0
MAINTENANCE_S = 1.0


class TableReplica:
    """One table on this replica.

    Parameters
    ----------
    definition, replica
        The table, and its place in coordination.
    server
        The server that hosts it.
    """

    on_end: Callable[[], object]
    on_answer: Callable[[fx.ClientAnswer], object]

    def __init__(self, definition: TableDefinition, replica: Replica, server: ServerContext) -> None:
        config, metrics, coordination = server.config, server.metrics, server.coordination
        self.coordination, self._tables, self._gathered = coordination, server.table, server.gathered
        self.definitions = Definitions(replica.table, definition, coordination)
        self.metrics, self.meter = metrics, metrics.meter(definition.name)
        self.log, root = server.log.bind(table=definition.name), Path(config.data) / "tables" / definition.folder_name
        self.store, self.uploads, self.progress = PartStore(root), Uploads(root / "uploads"), Progress(replica)
        self.definitions.keep_in(root)
        exchange = self.exchange = Exchange(
            self.store, lambda name, fresh: server.peer(Replica(replica.table, name), fresh), config.fetch_threads
        )
        self.old_parts = OldParts(self.store, config.old_parts_lifetime_s, keep_s=lambda: self.definition.keep_s)
        self.performer = Performer(
            coordination, self._perform_here, self._answer, self._wrap, self._commit, self._check_refused
        )
        context = self.context = TableContext(
            config, server.identity, self.definitions, self.performer, self.progress, PullSignal(), metrics, self.log
        )
        look_up = self.performer.look_up
        versions = Versions(self.progress, self.old_parts, root, look_up, self.log, lambda: self.definition.feed_s)
        parts = self.local_parts = LocalParts(self.store, self.progress, self.old_parts, versions)
        availability = self.availability = Availability(context, self.store)
        storage = self.followed_storage = FollowedStorage(
            context,
            self.store,
            exchange,
            lambda now: Sharing(
                context, parts, availability, self.uploads, Moves(context, parts, exchange, self.suspect), now
            ),
        )
        self.recovery, self.merges = Recovery(context, availability), Merges(context, parts)
        self.snapshots = Snapshots(replica.name, parts, self.why_unreadable, look_up)
        self.prepared = PreparedMerges(context, parts, self.uploads, self.merges, storage)
        self.maker = Maker(context, parts, self.prepared, storage, self.suspect, availability.why_makes_nothing)
        sources = self.sources = PartSources(context, parts, exchange, storage)
        self.lost_parts = LostParts(context, parts, sources)
        appends, views = Appends(), ViewWriter(context, self.store, server.table)
        self.quorums, writer = Quorums(context, availability), InsertWriter(context, self.store, storage, availability)
        performer = self.store_performer = StorePerformer(parts, exchange, writer, self.maker, views)
        storage.use(None)
        self.inserts = Inserts(context, availability, performer, self.quorums, appends)
        self.joint_inserts = JointInserts(context, availability, performer, self.quorums, appends)
        self.joint_groups = JointGroups(context, availability, self.joint_inserts)
        self.on_end, self.on_answer = (lambda: None), (lambda _: None)
        look_ahead = LookAhead(replica.name, exchange.begin, self.quorums.heard, self.prepared_rows.committed)
        self.puller = Puller(context, parts, availability, appends, look_ahead)
        lanes = (Lane.SMALL, Lane.LARGE, *[Lane.MAKING] * config.merge_threads)
        self._executors = [Executor(context, availability, performer, self.maker, appends, lane) for lane in lanes]
        self.leader = Leader(context, availability, self.maker, self.merges, self.quorums)
        self.cleaner, self.streams = Cleaner(context, availability, self.leader), ReplicaStreams(context, availability)
        self.commands = Commands(
            context, self.store, availability, self.maker, self.merges, partial(check_change, context, self._tables)
        )
        self.rewrites = Rewrites(
            context, parts, availability, self.merges, self.snapshots, self.uploads, self.store_performer, storage
        )
        self.end_of_log, naming = EndOfLog(self.performer, self.progress), Naming(context, availability)
        self.tagging = Tagging(context, parts, self.snapshots, naming)
        self.consuming = Consuming(context, parts, self.snapshots, naming, lambda: self.feeds)
        self.mover = Mover(context, parts, availability, storage, self.leader, self.commands)
        self.expiry = Expiry(context, parts, availability, lambda: self.leader.leader, self.commands)
        self.mending = Mending(context, parts, availability, sources, self.lost_parts, self.mover)
        self.checker = Checker(context, parts, self.mending.check, availability.is_stopping)
        keepers = Keepers(self.mending, self.lost_parts, self.prepared, self.prepared_rows, self.uploads, storage)
        self.maintenance = Maintenance(context, parts, availability, keepers, exchange, self.consuming)
        self._activation = Activation(context, parts, availability, storage, self.recovery, self.leader)
        self._life = threading.Thread(target=self._live, name=f"life-{definition.name}", daemon=True)
        self._mend = threading.Thread(target=self._maintain, name=f"mend-{definition.name}", daemon=True)

    @cached_property
    def cuts(self) -> Cuts:
        """What it knows of cuts, as a shard."""
        questions = self.context.metrics.cut_questions.labels(self.replica.table.name)
        return Cuts(self.coordination, self.progress, questions.inc)

    def _perform_here(self, effect: fx.StoreEffect) -> object:
        sharing, perform = self.sharing, self.store_performer.perform
        return perform(effect) if sharing is None else sharing.perform_beside(effect, perform)

    def _commit(self, commit: fx.Commit) -> fx.Committed:
        registered, own = registered_by(self.replica, commit), f"{layout.replica_path(self.replica)}/"
        # What a pull or an execution changes is the replica's own, and nothing goes by the number of its transaction.
        is_own = all(each.path.startswith(own) for each in commit.operations)
        perform = self._gathered if is_own else self.coordination().perform
        if not registered:
            return perform(commit)
        with self.store.expecting() as expect:
            outcome = perform(commit)
            if isinstance(outcome, fx.Applied):
                expect(registered)
        return outcome

    def _wrap(self, procedure: fx.Procedure[T], /) -> fx.Procedure[T]:
        sharing = self.sharing
        if sharing is not None:
            return sharing.wrap(procedure)
        # The table may get its object store while the procedure runs.
        return with_shares_once_open(lambda: None if self.sharing is None else self.sharing.opened_as, procedure)

    # --- what others ask ---

    @property
    def replica(self) -> Replica:
        """The replica's place in coordination, below the parent that the log has reached: entries are appended there."""
        return self.progress.replica

    @property
    def lacking(self) -> dict[str, str]:
        """The registered parts that are not whole here, each with the content that it should have."""
        return self.local_parts.lacking

    @property
    def sharing(self) -> Sharing | None:
        """The table's shares; None for a table that has no store."""
        return self.followed_storage.sharing

    @property
    def prepared_rows(self) -> PreparedRows:
        """What this replica has prepared for joint inserts, and holds."""
        return self.joint_inserts.prepared

    @property
    def definition(self) -> TableDefinition:
        """The table's definition, as new as this replica knows it."""
        return self.definitions.current

    @property
    def views(self) -> ReplicaViews:
        """The materialised views of the table."""
        return ReplicaViews(
            self.context, self.local_parts, self.availability, self.snapshots, self.tagging, self._tables
        )

    @property
    def feeds(self) -> Feeds:
        """The change feed."""
        return Feeds(
            self.replica.name, self.local_parts, self.definition.feed, self.why_unreadable, self.consuming.are_there
        )

    def pause_merges(self, *, paused: bool) -> None:
        """Stop merging on this replica, and do not lead; or go on."""
        self.maker.is_paused = paused
        self.progress.retry_now()
        self.leader.wake()

    def status(self) -> dict[str, object]:
        """Return what an operator wants to know."""
        return status_of(self)

    def _check_refused(self, check: fx.Check) -> None:
        if check.path == layout.host(self.replica):
            self.availability.fenced(fx.Epoch(check.version))

    def why_unreadable(self) -> str | None:
        """Say why what is here is no state of the table, or None."""
        if self.recovery.unreadable is not None:
            return f"{self.recovery.unreadable} ({self.availability.reason})"
        return self.availability.why_not_active() if self.progress.place is None else None

    # --- life ---

    def start(self) -> None:
        """Begin to live."""
        for thread in (self._life, self._mend):
            thread.start()
        self.puller.start()
        for executor in self._executors:
            executor.start()
        self.quorums.start()
        self.leader.start()
        self.cleaner.start()
        self.checker.start()
        self.mover.start()
        self.expiry.start()

    def stop(self, timeout_s: float) -> None:
        """Finish the inserts that wait, then stop every thread."""
        self.inserts.close(timeout_s)
        self.joint_groups.close(timeout_s)
        self.availability.stop("shut down")
        self.progress.wake()
        self.quorums.join(timeout_s)
        self.leader.join(timeout_s)
        self.cleaner.join(timeout_s)
        self.checker.close(timeout_s)
        self.mover.join(timeout_s)
        self.expiry.join(timeout_s)
        self.puller.join(timeout_s)
        for executor in self._executors:
            executor.join(timeout_s)
        self._life.join(timeout_s)
        self.exchange.close()

    def drop(self, timeout_s: float) -> None:
        """Stop, take this replica out of the table, and delete its local data."""
        self.stop(timeout_s)
        if self.sharing is not None:
            self.sharing.leave()
        then = Then(table_drop.leave_table, (self.replica, self.sharing is not None))
        Driver(self.performer, lambda _: None).run(then)
        self.store.destroy()

    def _live(self) -> None:
        availability, pause_s, has_epoch = self.availability, RETRY_S_MIN, False
        while availability.may_go_on():
            try:
                if has_epoch and not availability.needs_activation:
                    self._activation.go_on()
                else:
                    has_epoch = False
                    self._activation.activate()
                    has_epoch = True
                pause_s = RETRY_S_MIN
            except (ReplicaBusy, ReplicaReplaced) as error:
                availability.stop(str(error))
                self.on_end()
                return
            except Exception as error:  # noqa: BLE001 - also a defect of ours: the replica says so, and tries again
                reason = str(error)
                if not isinstance(error, ReplitreeError | OSError):
                    self.log.defect("activation failed")
                    reason = f"activation failed: {type(error).__name__}; the log of this server has the reason"
                availability.pause(reason, pause_s)
                pause_s = min(RETRY_S_MAX, pause_s * 2)
            else:
                availability.wait_duty()

    def _answer(self, request: fx.RequestId, answer: fx.ClientAnswer) -> None:
        self.on_answer(answer)
        if not self.joint_inserts.answer(request, answer):
            self.inserts.answer(request, answer)

    def _maintain(self) -> None:
        while not self.availability.is_stopping():
            self.availability.wait_stopping(MAINTENANCE_S)
            if self.availability.state is State.ACTIVE:
                self.maintenance.round()
            # The metrics of a table that was dropped are forgotten.
            if not self.availability.is_stopping():
                measure(self)

    def suspect(self, part: str) -> bool:
        """Verify a part that a reader found broken; a broken one is set aside and fetched again.  True: it was whole."""
        return self.mending.suspect(part)
