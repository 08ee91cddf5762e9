"""The states of a model of views, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from typing_extensions import override

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import AlterEntry, GetEntry, SettleEntry, encode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.core.views import NO_VIEWS, StagedView, Views, staged_view
from replitree.protocol.insert.views import Backfill, InsertOrigin, backfill_token, backfill_version, read_views
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.program.commands import accept_drop, accept_view, give_command, mark_filled
from replitree.protocol.program.inserter import accept_insert
from replitree.protocol.program.stages import (
    Accept,
    AcceptCommand,
    Accepted,
    AwaitDecided,
    Release,
    ReportTrouble,
    Stage,
    Then,
)
from replitree.protocol.propose.propose import Proposer
from replitree.protocol.propose.views import NewView
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import arrivals, committed, ends_of, log_of, put
from replitree_verify.process.log_duties import roll
from replitree_verify.views.model import Model
from replitree_verify.views.tables import SOURCE, TARGET, VIEW, begun_at, rows_below
from replitree_verify.world.faults import Budget, Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel

SEATS = ("r1", "r2")
TABLES = {"s": SOURCE, "t": TARGET}
NOT_BEGUN = -1

EPOCH_TAKEN = "epoch taken"
"""In what an activation has listed, beside staging ids: it has its epoch, and may sweep."""

DONE = {"create": "view created", "drop": "view dropped", "fill": "filled", "alter": "altered", "roll": "rolled"}
"""The rare branch that a commit is, by the kind of its job."""


class ViewProcess(NamedTuple):
    """A process of a seat.

    Attributes
    ----------
    number
        How many there were before it.
    epochs
        Its epochs in source and target; None while it has none.
    views
        The views that it has seen of source and target.
    """

    number: int = 0
    epochs: tuple[int | None, int | None] = (0, 0)
    views: tuple[Views, Views] = (NO_VIEWS, NO_VIEWS)


class ViewThread(NamedTuple):
    """What a seat is asked to do: where it stands, and the staging id of its inserts."""

    place: int = NOT_BEGUN
    staging: str = ""


class ViewState(NamedTuple):
    """A state.

    Attributes
    ----------
    tree, processes
        The nodes, and the process of each seat.
    folders
        What is staged: (seat, table, staging id).
    listed
        What an activation of the target has listed, to sweep, by seat; None: none is under way.
    threads
        In the order of `Space.jobs`.
    late
        Commits that are on their way.
    answers
        By thread: what its client has heard.
    budget
        Faults that may still happen.
    """

    tree: Tree
    processes: tuple[ViewProcess, ...]
    folders: frozenset[tuple[str, str, str]]
    listed: tuple[frozenset[str] | None, ...]
    threads: tuple[ViewThread, ...]
    late: tuple[tuple[fx.Operation, ...], ...]
    answers: tuple[fx.ClientAnswer | None, ...]
    budget: Budget
    forgotten: bool = False

    @property
    def key(self) -> ViewState:
        """What tells it apart."""
        return self


class Job(NamedTuple):
    """One thing that is asked: its kind, its seat, the table, and more of it."""

    kind: str
    seat: str
    table: str
    more: Any = None


def alter(replica: Replica, request: fx.RequestId, version: fx.Version) -> Stage:
    """Drop the column that the view reads, unless the table has the view: what a replica does with an alter."""
    accepted: Accepted = yield AcceptCommand(request)
    views = yield from read_views(replica.table)
    if views.value.views:
        yield fx.Answer(request, fx.NotInserted("a view reads the column"))
        return None
    proposer = Proposer(layout.at_pointer(replica, accepted.log_from), accepted.me, accepted.log_from)
    entry = AlterEntry(replica.name, fx.EntryId("alter"), "drop c", version + 2)
    return Then(give_command, (proposer, accepted.epoch, request, entry, (b"", version), (), views))


class Space(small_search.Space[ViewState]):
    """The states of a model.

    Attributes
    ----------
    probes
        The rare branches that were seen.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.probes = set[str]()
        self._kernel = Kernel()
        self.jobs = (
            *(Job("send", each.seat, "s", each) for each in model.sends),
            *(Job("create", seat, "s") for seat in model.creates),
            *(Job("drop", seat, "s") for seat in model.drops),
            *(Job("fill", seat, "t") for seat in model.fills),
            *(Job("alter", seat, "s") for seat in model.alters),
            *(Job("roll", seat, table) for seat, table in model.rolls),
            *(Job("retake", seat, "t") for seat in model.retakes),
            *((Job("settle", "r1", "s"),) if model.is_open else ()),
        )

    @override
    def first(self) -> ViewState:
        nodes: list[fx.Operation] = [fx.Create(path) for path in ("/c", "/c/tables")]
        for table in TABLES.values():
            nodes += table_nodes(table, b"", b"", encode_log(table))
            for seat in SEATS:
                replica = Replica(table, seat)
                nodes += (fx.Create(layout.replica_path(replica)), fx.Create(layout.host(replica), f"{seat}0".encode()))
        if self.model.before:
            part = fx.StagedPart("all", 1, 1, self.model.before)
            entry = GetEntry("r1", fx.StagingId("before"), (part,), ())
            if self.model.is_open:
                entry = GetEntry("r1", fx.StagingId("before"), (part,), (), format=3, quorum=2)
            nodes.append(fx.Create(layout.log_create(SOURCE), encode_entry(entry), sequential=True))
            if self.model.is_open:
                nodes.append(fx.Create(layout.quorum_status(SOURCE, fx.StagingId("before"))))
        tree = committed(Tree(), tuple(nodes))
        count = len(self.jobs)
        state = ViewState(
            tree,
            (ViewProcess(),) * len(SEATS),
            frozenset({("r1", "s", "before")}) if self.model.before else frozenset(),
            (None,) * len(SEATS),
            (ViewThread(),) * count,
            (),
            (None,) * count,
            budget_of(self.model.faults),
        )
        return self._with_view(state) if self.model.has_view else state

    @override
    def is_at_rest(self, state: ViewState, /) -> bool:
        return all(thread.place == END for thread in state.threads) and not state.late

    # --- steps ------------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: ViewState, /) -> Iterator[tuple[str, ViewState]]:
        for number, (job, thread) in enumerate(zip(self.jobs, state.threads, strict=True)):
            if thread.place == NOT_BEGUN:
                yield from self._begin(state, number, job)
            elif thread.place != END:
                yield from self._go_on(state, number, job, thread)
        for arrival in arrivals(state.tree, state.late):
            if arrival.is_applied:
                self.probes.add("applied late")
            yield "a late commit arrives", state._replace(tree=arrival.tree, late=arrival.late)
        for number, seat in enumerate(SEATS):
            yield from self._of_seat(state, number, seat)
        if self.model.forgets and not state.forgotten:
            names = state.tree.children(layout.blocks(TARGET)) or ()
            gone = tuple(fx.Delete(f"{layout.blocks(TARGET)}/{name}", fx.ANY_VERSION) for name in names)
            if gone:
                yield "ids are forgotten", state._replace(tree=committed(state.tree, gone), forgotten=True)

    def _begin(self, state: ViewState, number: int, job: Job) -> Iterator[tuple[str, ViewState]]:
        """Begin a thread, if its process is active and there is something to do."""
        process = state.processes[SEATS.index(job.seat)]
        epoch = process.epochs[job.table == "t"]
        if epoch is None:
            return
        replica, request, created = Replica(TABLES[job.table], job.seat), fx.RequestId(number), begun_at(state.tree)
        columns = state.tree.get(layout.columns(SOURCE))
        target_columns = state.tree.get(layout.columns(TARGET))
        assert columns is not None
        assert target_columns is not None
        match job.kind:
            case "send":
                place = self._kernel.begin(
                    accept_insert, replica, ((request, fx.BlockId(job.more.token)),), (), job.more.quorum
                )
            case "create":
                # The views are checked against the columns as they are at some moment before the commit.
                if any(isinstance(entry, AlterEntry) for _, entry in log_of(state.tree, SOURCE)):
                    self.probes.add("view refused")
                    yield "create: refused", self._at(state, number, END)
                    return
                view = NewView(VIEW, "v", "v", TARGET, columns.version, target_columns.version)
                place = self._kernel.begin(accept_view, replica, request, view)
            case "drop":
                place = self._kernel.begin(accept_drop, replica, request, fx.EntryId("gone"), "v")
            case "fill":
                if created is None:
                    return
                place = self._begin_to_fill(state, replica, request, created)
            case "alter":
                place = self._kernel.begin(alter, replica, request, columns.version)
            case "roll":
                place = self._kernel.begin(roll, replica, fx.Epoch(epoch))
            case "settle":
                # No replica pulls here, so none joins the quorum: it is reached in one step.
                staging = fx.StagingId("before")
                entry = encode_entry(SettleEntry("r1", staging, 0, SEATS))
                reached = (
                    fx.Delete(layout.quorum_status(SOURCE, staging), fx.ANY_VERSION),
                    fx.Create(layout.log_create(SOURCE), entry, sequential=True),
                )
                after = state._replace(tree=committed(state.tree, reached))
                yield "the quorum is reached", self._at(after, number, END)
                return
            case _:
                # An activation lists before it takes its epoch: what is staged under that one is not in the list.
                seat = SEATS.index(job.seat)
                if state.listed[seat] is None:
                    listed = put(state.listed, seat, _staged_for_target(state, job.seat))
                    yield "the target lists", self._at(state, number, END)._replace(listed=listed)
                return
        yield f"{job.seat} begins to {job.kind}", self._at(state, number, place)

    def _begin_to_fill(self, state: ViewState, replica: Replica, request: fx.RequestId, created: fx.LogIndex) -> int:
        """Return where a backfill begins: as an insert, or as a mark where the source has no rows for it."""
        backfill = Backfill(SOURCE, VIEW)
        if not rows_below(state.tree, backfill_version(created)):
            return self._kernel.begin(mark_filled, Replica(SOURCE, replica.name), request, backfill)
        token = fx.BlockId(backfill_token(VIEW, created))
        arguments = (replica, ((request, token),), (), 0, 1, None, False, InsertOrigin(backfill=backfill))
        return self._kernel.begin(accept_insert, *arguments)

    def _of_seat(self, state: ViewState, number: int, seat: str) -> Iterator[tuple[str, ViewState]]:
        """Give what happens to the process of a seat: it dies, and the next takes its epochs; the target sweeps."""
        process, listed = state.processes[number], state.listed[number]
        left = spent(state.budget, Fault.CRASH)
        if left is not None:
            self.probes.add("crashed")
            threads = tuple(
                thread._replace(place=END) if job.seat == seat and thread.place != NOT_BEGUN else thread
                for job, thread in zip(self.jobs, state.threads, strict=True)
            )
            # Its disk stays: the next process lists what is staged there, and sweeps it under its own epoch.
            dead = ViewProcess(process.number + 1, (None, None))
            yield (
                f"{seat} crashes",
                state._replace(
                    processes=put(state.processes, number, dead),
                    threads=threads,
                    listed=put(state.listed, number, _staged_for_target(state, seat)),
                    budget=left,
                ),
            )
        if process.epochs[0] is None:
            yield f"{seat} takes the source", self._take(state, number, "s")
        elif process.epochs[1] is None or (listed is not None and EPOCH_TAKEN not in listed):
            yield f"{seat} takes the target", self._take(state, number, "t")
        elif listed is not None:
            # The log is read after the epoch was taken: no commit under an earlier epoch can name what is swept.
            wanted = {entry.insert for _, entry in log_of(state.tree, TARGET) if isinstance(entry, GetEntry)}
            swept = frozenset((seat, "t", name) for name in listed if name not in wanted)
            if swept & state.folders:
                self.probes.add("swept")
            after = state._replace(folders=state.folders - swept, listed=put(state.listed, number, None))
            yield f"the target of {seat} sweeps", after

    def _take(self, state: ViewState, number: int, table: str) -> ViewState:
        """Take a new epoch for the process of a seat."""
        process, host = state.processes[number], layout.host(Replica(TABLES[table], SEATS[number]))
        me = f"{SEATS[number]}{process.number}".encode()
        tree = committed(state.tree, (fx.Set(host, me, fx.ANY_VERSION),))
        node = tree.get(host)
        assert node is not None
        epochs = (node.version, process.epochs[1]) if table == "s" else (process.epochs[0], node.version)
        after = state._replace(tree=tree, processes=put(state.processes, number, process._replace(epochs=epochs)))
        listed = state.listed[number]
        if table == "t" and listed is not None:
            after = after._replace(listed=put(state.listed, number, listed | {EPOCH_TAKEN}))
        return after

    # --- threads ----------------------------------------------------------------------------------------------------------

    def _go_on(self, state: ViewState, number: int, job: Job, thread: ViewThread) -> Iterator[tuple[str, ViewState]]:
        """Give each way in which the effect of a thread may end."""
        effect = self._kernel.effect(thread.place)
        what = f"{job.seat} {job.kind} {type(effect).__name__}"
        if isinstance(effect, fx.Commit):
            yield from self._commit(state, number, effect, what)
        elif isinstance(effect, fx.Stage):
            left = spent(state.budget, Fault.DISK)
            if left is not None and effect.views:
                failed = fx.StoreFailed("the view can't be computed", by_request=True)
                yield f"{what} fails", self._ended(state._replace(budget=left), number, failed)
            if effect.views and state.processes[SEATS.index(job.seat)].epochs[1] is None:
                yield (
                    f"{what} finds no target",
                    self._ended(state, number, fx.StoreFailed("the target is not active here")),
                )
                return
            after, staged = self._stage(state, job, effect)
            yield f"{what} {effect.staging}", self._ended(after, number, staged)
        else:
            after, outcome = self._perform(state, number, job, effect)
            yield what, self._ended(after, number, outcome)

    def _commit(self, state: ViewState, number: int, effect: fx.Commit, what: str) -> Iterator[tuple[str, ViewState]]:
        kind = self.jobs[number].kind
        for end in ends_of(state.tree, effect.operations, state.budget):
            if isinstance(end.outcome, fx.Applied) and kind in DONE:
                self.probes.add(DONE[kind])
            if isinstance(end.outcome, fx.Refused) and end.outcome.reason is fx.Reason.NOT_EMPTY and kind == "create":
                self.probes.add("quorum open")
            after = state._replace(tree=end.tree, budget=end.budget, late=(*state.late, *end.late))
            yield f"{what} {end.told}", self._ended(after, number, end.outcome)

    def _stage(self, state: ViewState, job: Job, effect: fx.Stage) -> tuple[ViewState, fx.Staged]:
        """Stage the rows of a request, and of each view."""
        process = state.processes[SEATS.index(job.seat)]
        if effect.staging.endswith(".1"):
            self.probes.add("staged again")
        if job.kind == "fill":
            created = begun_at(state.tree)
            assert created is not None
            content = rows_below(state.tree, backfill_version(created))
        else:
            content = job.more.token
        folders = state.folders | {(job.seat, job.table, effect.staging)}
        views = list[StagedView]()
        for view in effect.views:
            epoch = process.epochs[1]
            assert epoch is not None
            folders |= {(job.seat, "t", staged_view(effect.staging, view.id))}
            rows = (fx.StagedPart("all", 1, 1, content),)
            # The replica pulls before it stages: it knows the parent that the target's log has now.
            place = TARGET.below(len(_parents(state.tree)) - 1)
            views.append(StagedView(view.id, Replica(place, job.seat), fx.Epoch(epoch), rows))
        parts = tuple(fx.StagedPart("all", 1, 1, each) for each in ([content] if content else []))
        return state._replace(folders=folders), fx.Staged(parts, (), tuple(views))

    def _perform(self, state: ViewState, number: int, job: Job, effect: Any) -> tuple[ViewState, Any]:
        """Perform an effect that meets no fault."""
        seat = SEATS.index(job.seat)
        process = state.processes[seat]
        match effect:
            case Accept() | AcceptCommand():
                staging = fx.StagingId(f"{job.seat}{process.number}-{number}")
                # A command is one of the source.
                at = 1 if job.table == "t" and isinstance(effect, Accept) else 0
                epoch = process.epochs[at]
                assert epoch is not None
                parent = len(_parents(state.tree, TARGET if at else SOURCE)) - 1
                log_from = fx.LogIndex(parent * layout.PARENT_ENTRIES)
                me = f"{job.seat}{process.number}".encode()
                return state, Accepted(me, fx.Epoch(epoch), log_from, staging, process.views[at])
            case Release(_, views):
                if views is not None:
                    seen = (views, process.views[1]) if job.table == "s" else (process.views[0], views)
                    process = process._replace(views=seen)
                return state._replace(processes=put(state.processes, seat, process)), None
            case ReportTrouble() | fx.Sync():
                return state, None
            case fx.CurrentEpoch():
                return state, process.epochs[job.table == "t"]
            case fx.AdoptEpoch(epoch):
                epochs = (epoch, process.epochs[1]) if job.table == "s" else (process.epochs[0], epoch)
                return state._replace(processes=put(state.processes, seat, process._replace(epochs=epochs))), None
            case fx.RemoveStaging(staging):
                gone = {each for each in state.folders if each[0] == job.seat and each[2].rpartition("~")[2] == staging}
                return state._replace(folders=state.folders - gone), None
            case fx.Publish():
                return state, fx.Published()
            case fx.Answer(request, told):
                self._hear(job, told)
                heard = state.answers[request] or told
                return state._replace(answers=put(state.answers, request, heard)), None
        return state, answer(state.tree, effect)

    def _hear(self, job: Job, told: fx.ClientAnswer) -> None:
        match told:
            case fx.Inserted() if job.kind == "send":
                self.probes.add("inserted")
            case fx.Duplicate():
                self.probes.add("duplicate")
            case fx.NotInserted(why=fx.Why.REQUEST) if job.kind == "send" and job.more.quorum:
                self.probes.add("refused")
            case fx.NotInserted():
                self.probes.add({"alter": "alter refused", "create": "view refused"}.get(job.kind, "not inserted"))

    # --- states -----------------------------------------------------------------------------------------------------------

    def _ended(self, state: ViewState, number: int, outcome: Any) -> ViewState:
        return self._at(state, number, self._kernel.step(state.threads[number].place, outcome))

    def _at(self, state: ViewState, number: int, place: int) -> ViewState:
        # What becomes of a quorum is for the models of quorums.
        waits = isinstance(self._kernel.effect(place), AwaitDecided) if place not in (END, NOT_BEGUN) else False
        return state._replace(threads=put(state.threads, number, ViewThread(END if waits else place)))

    def _with_view(self, state: ViewState) -> ViewState:
        """Create the view without faults before anything else happens, and let it count as filled."""
        columns = state.tree.get(layout.columns(SOURCE))
        assert columns is not None
        view = NewView(VIEW, "v", "v", TARGET, columns.version, columns.version, is_filled=True)
        request = fx.RequestId(0)
        place = self._kernel.begin(accept_view, Replica(SOURCE, "r1"), request, view)
        job = Job("create", "r1", "s")
        while place != END:
            effect = self._kernel.effect(place)
            if isinstance(effect, fx.Commit):
                tree, outcome = state.tree.commit(effect.operations, 1)
                state = state._replace(tree=tree)
            elif isinstance(effect, fx.Answer):
                outcome = None
            else:
                state, outcome = self._perform(state, 0, job, effect)
            place = self._kernel.step(place, outcome)
        return state


def _parents(tree: Tree, table: TablePlace = TARGET) -> tuple[str, ...]:
    """Return the parents of a table's log."""
    return tuple(name for name in tree.children(table.path) or () if name == "log" or name.startswith("log."))


def _staged_for_target(state: ViewState, seat: str) -> frozenset[str]:
    """Return the staging ids of what a seat has staged for the target."""
    return frozenset(name for at, table, name in state.folders if at == seat and table == "t")
