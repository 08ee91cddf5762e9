"""The states of a model of joint inserts, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET
from typing_extensions import override

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.fold import NOTHING
from replitree.protocol.core.joint_tokens import decode_token
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.streams import decode_stream
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.program.sharded.coordinator import (
    Became,
    CoordinatorOutcome,
    EndBeside,
    JointRequest,
    OwnTurn,
    TakeOwn,
)
from replitree.protocol.program.sharded.participant import (
    AcceptRows,
    AwaitForgetting,
    AwaitGivingUp,
    ForgetTurn,
    GiveUpTurn,
    Hold,
    LetGoRows,
)
from replitree.protocol.program.stages import Accepted, AwaitCleaning
from replitree.protocol.sharded.joint_batch import batch_token
from replitree.protocol.sharded.joint_insert import JointInserted, MapChanged
from replitree.protocol.sharded.prepare import Abandonment, Participant, ParticipantGone
from replitree.protocol.shares.share import DeleteObjects
from replitree.protocol.shares.share_effects import PutShares
from replitree.protocol.state.pull import Loaded, Place, Pointer, Queued
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import arrivals, committed, ends_of, log_of, put
from replitree_verify.joint import stored
from replitree_verify.joint.logs import (
    MAP,
    PLACE,
    REPLICAS,
    SEATS,
    SHARDS,
    START,
    gets_of,
    is_open_or_failed,
    opened_in,
    verdicts_of,
)
from replitree_verify.joint.model import STREAM, Joint, Model
from replitree_verify.joint.stages import (
    ALONE,
    ENDS,
    HEARD,
    MEMORY,
    ReadQueue,
    Tell,
    begin_anew,
    clean,
    coordinate,
    forget,
    let_go,
    reads_log,
    take_part,
)
from replitree_verify.joint.state import At, JointProcess, JointState, Sent
from replitree_verify.process.log_duties import count, lose_patience, roll
from replitree_verify.world.faults import Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel

NOT_BEGUN = -1

PREPARES, COMMITS, ABANDONS = 0, 1, 2
"""Threads of a client's insert; one more for each further attempt abandons what that has prepared."""


STREAM_NODE = layout.stream(TablePlace(PLACE), STREAM)
"""Which batch of the stream the table has last."""

AT_ANY_TIME = (roll, clean, forget)
"""The duties that need no open insert."""


class Space(small_search.Space[JointState]):
    """The states of a model.

    Attributes
    ----------
    probes
        The rare branches that were seen.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.probes = set[str]()
        self._kernel = stored.JointStoreKernel() if model.tidies else Kernel()
        asked = (
            (count, model.joins),
            (lose_patience, model.gives_up),
            (roll, model.rolls),
            (clean, model.cleans),
            (stored.tidy, model.tidies),
            (forget, model.forgets_stream),
        )
        self._duties = tuple((duty, seat) for duty, seats in asked for seat in seats)
        # The others have nothing to do.
        self._seats = tuple(
            number
            for number, seat in enumerate(SEATS)
            if number < 2 or seat in (*model.joins, *model.gives_up, *model.cleans)
        )

    @override
    def first(self) -> JointState:
        nodes: list[fx.Operation] = [fx.Create(path) for path in ("/c", "/c/tables", "/c/sharded", PLACE)]
        nodes += (fx.Create(layout.shard_map(PLACE), MAP), fx.Create(layout.joint_tokens(PLACE)))
        nodes.append(fx.Create(layout.joint_inserts(PLACE)))
        for shard in SHARDS:
            nodes += table_nodes(shard, b"", b"", encode_log(shard))
        if self.model.tidies:
            nodes += stored.store_nodes()
        for replica in REPLICAS:
            nodes += (fx.Create(layout.replica_path(replica)), fx.Create(layout.host(replica), _me(replica.name, 0)))
            nodes += (fx.Create(layout.is_active(replica), _me(replica.name, 0)),)
        sent = Sent(threads=(NOT_BEGUN,) * (ABANDONS + self.model.attempts))
        return JointState(
            committed(Tree(), tuple(nodes)),
            (JointProcess(),) * len(SEATS),
            (sent,) * len(self.model.inserts),
            (NOT_BEGUN,) * len(self._duties),
            frozenset(),
            (),
            budget_of(self.model.faults),
            self.model.maps,
            self.model.retakes,
        )

    @override
    def is_at_rest(self, state: JointState, /) -> bool:
        places = (*(place for sent in state.sent for place in sent.threads), *state.duties)
        is_started = all(
            each.epoch is not None and each.listed is None and each.start == END for each in state.processes
        )
        return is_started and not state.late and max(places) <= END and not any(self._of_duties(state))

    # --- steps ------------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: JointState, /) -> Iterator[tuple[str, JointState]]:
        for number, (joint, sent) in enumerate(zip(self.model.inserts, state.sent, strict=True)):
            for thread, place in enumerate(sent.threads):
                seat = _seat_of(joint, thread)
                if place > END:
                    yield from self._go_on(state, seat, At("insert", number, thread), place)
                elif place == NOT_BEGUN and state.processes[seat].epoch is not None:
                    yield from self._begin(state, number, thread, seat)
        # Any commit on its way may come now; what came before it may refuse it for good.
        for arrival in arrivals(state.tree, state.late):
            if arrival.is_applied:
                self.probes.add("applied late")
            yield "a late commit arrives", state._replace(tree=arrival.tree, late=arrival.late)
        if self.model.abandons:
            yield from self._give_up_own(state)
        for seat in self._seats:
            yield from self._of_seat(state, seat)
        yield from self._of_duties(state)
        if state.maps:
            tree = committed(state.tree, (fx.Set(layout.shard_map(PLACE), MAP, fx.ANY_VERSION),))
            yield "the map changes", state._replace(tree=tree, maps=state.maps - 1)
        if self.model.forgets and not state.forgotten:
            names, kept = state.tree.children(layout.joint_tokens(PLACE)) or (), _kept(state.tree)
            paths = (layout.joint_token(PLACE, fx.BlockId(name)) for name in names if name != kept)
            gone = tuple(fx.Delete(path, fx.ANY_VERSION) for path in paths)
            if gone:
                # Time is not modelled: a cleaner may find any token too old at any time, once.
                self.probes.add("forgotten")
                yield "tokens are forgotten", state._replace(tree=committed(state.tree, gone), forgotten=True)

    def _begin(self, state: JointState, number: int, thread: int, seat: int) -> Iterator[tuple[str, JointState]]:
        """Begin a thread of an insert, if it is its turn."""
        sent, joint, request = state.sent[number], self.model.inserts[number], fx.RequestId(number)
        attempt, at = len(sent.prepared), At("insert", number, thread)
        # The replica pulls before it stages: it knows the parent that the log has now.
        marks = state.tree.children(layout.open_logs(REPLICAS[seat].table)) or ()
        here = Replica(REPLICAS[seat].table.below(max(map(layout.parent_named, marks))), SEATS[seat])
        what = f"{SEATS[seat]} begins to"
        if thread == PREPARES:
            version = state.tree.get(layout.shard_map(PLACE))
            assert version is not None
            place = self._kernel.begin(take_part, here, request, not self.model.is_one_process)
            # A client that prepares one shard's rows again has split them by the map of the first time.
            split = sent.map_version if sent.own is not None else version.version
            after = state._replace(sent=put(state.sent, number, sent._replace(map_version=split)))
            yield f"{what} prepare {joint.token}", self._settled(after, seat, at, place)
        elif thread == COMMITS and attempt and sent.threads[PREPARES] == END:
            joint_id, others = _joint_id(number, attempt), sent.prepared[-1:]
            # The participant could not prepare once more.
            if joint_id in sent.refused:
                return
            own = sent.lost or (sent.own.staging if sent.own is not None else self._staging(state, number, seat))
            token = fx.BlockId(joint.token) if joint.batch is None else batch_token(joint_id)
            also = tuple(map(fx.BlockId, joint.also))
            apart = () if self.model.is_one_process else others
            terms = joint_id, token, fx.Version(sent.map_version), own, apart, joint.quorum, joint.batch, also
            is_staged = sent.lost is not None or sent.own is not None
            place = self._kernel.begin(coordinate, here, request, JointRequest(*terms), is_staged)
            yield f"{what} insert {joint.token}", self._settled(state, seat, at, place)
        elif thread >= ABANDONS and thread - ABANDONS < attempt and self.model.abandons:
            # Also while the commit that takes it is on its way: of the two deletions of its node one is refused.
            place = self._kernel.begin(let_go, sent.prepared[thread - ABANDONS])
            yield f"{what} abandon {joint.token}", self._settled(state, seat, at, place)

    def _staging(self, state: JointState, number: int, seat: int) -> fx.StagingId:
        """Return the id under which a seat stages the rows of an insert now."""
        process, attempt = state.processes[seat].number, len(state.sent[number].prepared)
        return fx.StagingId(f"{SEATS[seat]}{process}-{number}.{attempt}")

    def _give_up_own(self, state: JointState) -> Iterator[tuple[str, JointState]]:
        """Give each way in which a coordinator gives up rows that it has kept for another try."""
        for number, (joint, sent) in enumerate(zip(self.model.inserts, state.sent, strict=True)):
            # While the commit is under way its thread has taken the rows, and nothing else gives them up.
            if sent.own is None or sent.threads[COMMITS] > END:
                continue
            seat, staging = SEATS.index(joint.coordinator), sent.own.staging
            process = state.processes[seat]
            after = state._replace(
                folders=state.folders - {(joint.coordinator, staging)},
                objects=state.objects.without_folder(joint.coordinator, staging),
                processes=put(state.processes, seat, process._replace(held=process.held - {staging})),
                sent=put(state.sent, number, sent._replace(own=None)),
            )
            yield f"{joint.coordinator} gives up {staging}", after

    def _of_seat(self, state: JointState, seat: int) -> Iterator[tuple[str, JointState]]:
        """Give what happens to the process of a seat: it dies, activates, and sweeps."""
        process, replica = state.processes[seat], REPLICAS[seat]
        here = frozenset(staging for at, staging in state.folders if at == SEATS[seat])
        left = spent(state.budget, Fault.CRASH)
        if left is not None:
            sessions = (fx.Delete(layout.is_active(replica), fx.ANY_VERSION),) if process.epoch is not None else ()
            sent = tuple(
                self._after_crash(
                    each, joint, seat, each.own.staging if each.own else self._staging(state, number, seat)
                )
                for number, (joint, each) in enumerate(zip(self.model.inserts, state.sent, strict=True))
            )
            # What it has executed and is open it counts itself for once more (`quorum.rejoin`).
            duties = tuple(
                place if SEATS.index(whose) != seat else NOT_BEGUN if duty is count else END
                for (duty, whose), place in zip(self._duties, state.duties, strict=True)
            )
            # Its disk stays: the next process lists what is staged there, and sweeps it under its own epoch.
            dead = JointProcess(process.number + 1, None, listed=here)
            after = state._replace(tree=committed(state.tree, sessions), sent=sent, duties=duties, budget=left)
            after = after._replace(objects=state.objects.after_crash(SEATS[seat], state.tree))
            yield f"{SEATS[seat]} crashes", after._replace(processes=put(state.processes, seat, dead))
        if SEATS[seat] in state.retakes and process.listed is None and process.start == END:
            # An activation lists before it takes its epoch: what is staged under that one is not in the list.
            listing = process._replace(listed=here - process.held)
            retakes = tuple(each for each in state.retakes if each != SEATS[seat])
            after = state._replace(processes=put(state.processes, seat, listing), retakes=retakes)
            yield f"{SEATS[seat]} lists", after
        if process.listed is not None:
            # An activation waits until the session of the process before has ended; here that end comes with it.
            me, active = _me(SEATS[seat], process.number), layout.is_active(replica)
            sessions = (fx.Delete(active, fx.ANY_VERSION),) if state.tree.get(active) is not None else ()
            takes = fx.Set(layout.host(replica), me, fx.ANY_VERSION)
            tree = committed(state.tree, (takes, *sessions, fx.Create(active, me)))
            host = tree.get(layout.host(replica))
            assert host is not None
            idle = tuple(fx.StagingId(each) for each in sorted(process.listed))
            start = self._kernel.begin(stored.begin_in_store if self.model.tidies else begin_anew, replica, idle)
            taken = process._replace(epoch=host.version, listed=None, start=start)
            yield f"{SEATS[seat]} activates", state._replace(tree=tree, processes=put(state.processes, seat, taken))
        if process.start != END:
            yield from self._go_on(state, seat, At("start", seat), process.start)

    def _of_duties(self, state: JointState) -> Iterator[tuple[str, JointState]]:
        """Give what those do who count themselves, or give up, when an insert is open in the log of their shard."""
        for number, ((duty, whose), place) in enumerate(zip(self._duties, state.duties, strict=True)):
            seat, at = SEATS.index(whose), At("duty", number)
            if place > END:
                yield from self._go_on(state, seat, at, place)
            opened, epoch = opened_in(state.tree, seat), state.processes[seat].epoch
            if duty is stored.tidy:
                # As often as there is something to do.
                if place <= END and epoch is not None and stored.has_to_tidy(state.objects, whose, state.tree):
                    left = tuple(sorted(share for at, share in state.objects.leaving if at == whose))
                    begun = self._kernel.begin(duty, REPLICAS[seat], fx.Epoch(epoch), left)
                    yield f"{whose} begins to tidy", self._settled(state, seat, at, begun)
                continue
            if place == NOT_BEGUN and epoch is not None and (opened or duty in AT_ANY_TIME):
                terms: tuple[Any, ...] = (self.model.known,) if duty is clean else (STREAM,) if duty is forget else ()
                if duty not in AT_ANY_TIME:
                    terms = opened[0]
                begun = self._kernel.begin(duty, REPLICAS[seat], fx.Epoch(epoch), *terms)
                after = state
                if duty is clean:
                    known = frozenset((number, token, block.insert) for token, block in self.model.known)
                    after = state._replace(judged=state.judged | known)
                yield f"{whose} begins to {duty.__name__}", self._settled(after, seat, at, begun)

    def _after_crash(self, sent: Sent, joint: Joint, seat: int, staging: fx.StagingId) -> Sent:
        """Return an insert of which a process has died: it does not abandon what it has prepared."""
        threads = list(sent.threads)
        for thread, place in enumerate(threads):
            # No process is left that remembers what was prepared, so the next one has to clear it away.
            is_known = thread >= ABANDONS and thread - ABANDONS < len(sent.prepared)
            if _seat_of(joint, thread) == seat and (place > END or is_known):
                threads[thread] = END
        if SEATS[seat] != joint.coordinator:
            return sent._replace(threads=tuple(threads))
        lost = sent.lost
        if sent.threads[COMMITS] > END and self.model.asks_again:
            # The client has heard nothing, and asks the next process.
            lost, threads[COMMITS] = lost or staging, NOT_BEGUN
        return sent._replace(threads=tuple(threads), own=None, lost=lost)

    def _go_on(self, state: JointState, seat: int, at: At, place: int) -> Iterator[tuple[str, JointState]]:
        """Give each way in which the effect of a thread may end."""
        effect = self._kernel.effect(place)
        what = f"{SEATS[seat]} {type(effect).__name__}"
        if isinstance(effect, fx.Commit):
            for end in ends_of(state.tree, effect.operations, state.budget):
                if end.tree is not state.tree and at.kind == "duty":
                    self.probes |= {ENDS[type(each)] for _, each in verdicts_of(end.tree)}
                after = state._replace(tree=end.tree, budget=end.budget, late=(*state.late, *end.late))
                if state.tree.exists(STREAM_NODE) and not end.tree.exists(STREAM_NODE):
                    self.probes.add("stream forgotten")
                    after = after._replace(before=sum(not shard for shard, _, _ in gets_of(end.tree)))
                if at.kind == "insert" and (last_of(end.tree) or 0) < (last_of(state.tree) or 0):
                    self.probes.add("set back")
                yield f"{what} {end.told}", self._settled(after, seat, at, self._kernel.step(place, end.outcome))
        else:
            left = spent(state.budget, Fault.STORE)
            if isinstance(effect, PutShares) and left is not None:
                for what_else, objects, outcome in stored.put_in_doubt(state.objects, SEATS[seat], effect):
                    after = state._replace(objects=objects, budget=left)
                    yield f"{what} {what_else}", self._settled(after, seat, at, self._kernel.step(place, outcome))
            after, outcome = self._perform(state, seat, at, effect)
            told = f"{what} {getattr(effect, 'staging', '')}"
            yield told, self._settled(after, seat, at, self._kernel.step(place, outcome))

    def _settled(self, state: JointState, seat: int, at: At, place: int) -> JointState:
        """Return a state in which a thread stands at a place, or behind it: what no other thread sees is no step of its own."""
        at_once = (*ALONE, *stored.AT_ONCE)
        while place > END and (
            isinstance(self._kernel.effect(place), at_once) or reads_log(self._kernel.effect(place))
        ):
            state, outcome = self._perform(state, seat, at, self._kernel.effect(place))
            place = self._kernel.step(place, outcome)
        return self._at(state, at, place)

    def _perform(self, state: JointState, seat: int, at: At, effect: Any) -> tuple[JointState, Any]:
        """Perform an effect that meets no fault."""
        process = state.processes[seat]
        match effect:
            case fx.Stage(staging, (request,)):
                sent, token = state.sent[request], self.model.inserts[request].token
                after = state._replace(folders=state.folders | {(SEATS[seat], staging)})
                return after, fx.Staged((fx.StagedPart("all", 1, 1, f"{token}@{sent.map_version}"),))
            case fx.ListStaging():
                here = {staging for at, staging in state.folders if at == SEATS[seat]}
                return state, tuple(sorted(here - process.held))
            case fx.RemoveStaging(staging):
                if at.kind == "start" and (SEATS[seat], staging) in state.folders:
                    self.probes.add("swept")
                objects = state.objects.without_folder(SEATS[seat], staging)
                return state._replace(folders=state.folders - {(SEATS[seat], staging)}, objects=objects), None
            case ReadQueue():
                # Everything in the log counts as pulled and not executed, so that a sweep may take none of it.
                queue = (Queued(index, entry, NOTHING) for index, entry in log_of(state.tree, REPLICAS[seat].table))
                place = Place(Pointer(START, fx.Version(0)), PartSet.of(()))
                return state, Loaded(place, tuple(queue), PartSet.of(()))
            case fx.CurrentEpoch():
                return state, process.epoch
            case fx.AdoptEpoch(epoch):
                return state._replace(
                    processes=put(state.processes, seat, process._replace(epoch=max(epoch, process.epoch or 0)))
                ), None
            case fx.Sync():
                return state, None
            case fx.GetMany(paths) if at.kind == "duty" and paths[0].startswith(layout.joint_tokens(PLACE)):
                return self._judge(state, at.number, paths), answer(state.tree, effect)
            case Tell():
                return self._hear(state, at.number, effect), None
        if isinstance(effect, (*MEMORY, *stored.SHARE_EFFECTS)):
            return self._remember(state, seat, at, effect)
        return state, answer(state.tree, effect)

    def _remember(self, state: JointState, seat: int, at: At, effect: Any) -> tuple[JointState, Any]:
        """Perform an effect on the memory of a process, or on its objects."""
        process, me, epoch = state.processes[seat], _me(SEATS[seat], state.processes[seat].number), fx.Epoch(0)
        if process.epoch is not None:
            epoch = fx.Epoch(process.epoch)
        sent = state.sent[at.number] if at.kind == "insert" else Sent()
        if isinstance(effect, stored.SHARE_EFFECTS):
            self.probes |= {"deleted"} if isinstance(effect, DeleteObjects) else set()
            objects, outcome = stored.perform(state.objects, SEATS[seat], effect)
            return state._replace(objects=objects), outcome
        match effect:
            case AcceptRows(request):
                staging = self._staging(state, request, seat)
                held = process._replace(held=process.held | {staging})
                return state._replace(processes=put(state.processes, seat, held)), Accepted(me, epoch, START, staging)
            case Hold(participant) if at.thread == COMMITS:
                return state._replace(sent=put(state.sent, at.number, sent._replace(own=participant))), None
            case LetGoRows(staging):
                held = process._replace(held=process.held - {staging})
                after = state._replace(processes=put(state.processes, seat, held))
                if sent.own is not None and sent.own.staging == staging:
                    after = after._replace(sent=put(state.sent, at.number, sent._replace(own=None)))
                return after, None
            case TakeOwn():
                is_whole = self.model.is_one_process and sent.own is not None
                return state, OwnTurn(me, sent.own, sent.prepared[-1:] if is_whole else ())
            # Nothing is sent again by these models, so what is kept is as good as held.
            case EndBeside(became) if became is not Became.KEPT:
                (beside,), other = sent.prepared[-1:], 1 - seat
                held = state.processes[other]._replace(held=state.processes[other].held - {beside.staging})
                folders = state.folders - ({(SEATS[other], beside.staging)} if became is Became.REMOVED else set())
                return state._replace(processes=put(state.processes, other, held), folders=folders), None
            case AwaitGivingUp():
                return state, GiveUpTurn(sent.prepared[at.thread - ABANDONS], me)
            case AwaitForgetting():
                return state, ForgetTurn(me, epoch)
            case AwaitCleaning():
                return state, epoch
        return state, None

    def _judge(self, state: JointState, duty: int, paths: tuple[str, ...]) -> JointState:
        """Note which tokens a cleaner has read for the first time."""
        names, judged = {token for each, token, _ in state.judged if each == duty}, set(state.judged)
        for path in paths:
            node, token = state.tree.get(path), path.rpartition("/")[2]
            if node is not None and token not in names:
                judged.add((duty, token, decode_token(node.value, path).inserts[0].insert))
        return state._replace(judged=frozenset(judged))

    def _hear(self, state: JointState, number: int, tell: Tell) -> JointState:
        """Let a client hear what became of its insert."""
        sent = state.sent[number]
        told: Participant | CoordinatorOutcome | Abandonment = tell.outcome
        if isinstance(told, Participant):
            return state._replace(sent=put(state.sent, number, sent._replace(prepared=(*sent.prepared, told))))
        is_duplicate = isinstance(told, JointInserted) and told.is_duplicate
        is_replaced = isinstance(told, fx.NotInserted) and told.why is fx.Why.STREAM
        heard_of = HEARD.get(told if isinstance(told, Abandonment) else type(told), "")
        self.probes.add("duplicate" if is_duplicate else "replaced" if is_replaced else heard_of)
        if isinstance(told, Abandonment):
            return state
        attempt = len(sent.prepared)
        is_refused = not isinstance(told, JointInserted | fx.InDoubt)
        if isinstance(told, JointInserted):
            # A client that has asked again hears of its own insert as of a duplicate.
            is_refused = is_duplicate and told.joint != _joint_id(number, attempt)
        refused = (*sent.refused, _joint_id(number, attempt)) if is_refused else sent.refused
        # What was prepared for the old map, or by the participant that is gone, stays to be abandoned.
        again = isinstance(told, MapChanged | ParticipantGone) and attempt < self.model.attempts
        threads = put(put(sent.threads, PREPARES, NOT_BEGUN), COMMITS, NOT_BEGUN) if again else sent.threads
        early = isinstance(told, JointInserted) and not tell.waits and is_open_or_failed(state.tree, told.joint)
        heard = sent._replace(refused=refused, told=told, threads=threads, is_early=early)
        return state._replace(sent=put(state.sent, number, heard))

    def _at(self, state: JointState, at: At, place: int) -> JointState:
        """Return a state in which a thread stands at a place."""
        if at.kind == "start":
            process = state.processes[at.number]._replace(start=place)
            return state._replace(processes=put(state.processes, at.number, process))
        if at.kind == "duty":
            return state._replace(duties=put(state.duties, at.number, place))
        sent = state.sent[at.number]
        # A client that begins anew has reset its threads: the one that has told it so ends all the same.
        stands = NOT_BEGUN if place == END and sent.threads[at.thread] == NOT_BEGUN else place
        return state._replace(
            sent=put(state.sent, at.number, sent._replace(threads=put(sent.threads, at.thread, stands)))
        )


def last_of(tree: Tree) -> int | None:
    """Return the number of the last batch of the stream; None: there was none."""
    node = tree.get(STREAM_NODE)
    return None if node is None else decode_stream(node.value, STREAM_NODE).batch


def _kept(tree: Tree) -> str | None:
    """Return the token that says whether the last batch of the stream counts."""
    node = tree.get(STREAM_NODE)
    value = None if node is None else decode_stream(node.value, STREAM_NODE)
    return None if value is None or value.quorum is UNSET else batch_token(fx.JointId(value.insert))


def _seat_of(joint: Joint, thread: int) -> int:
    """Return where a thread of an insert runs."""
    coordinator = SEATS.index(joint.coordinator)
    return coordinator if thread == COMMITS else 1 - coordinator


def _joint_id(number: int, attempt: int) -> fx.JointId:
    """Return the id of an attempt of an insert."""
    return fx.JointId(f"{number}.{attempt}")


def _me(seat: str, number: int) -> bytes:
    """Return what a process writes into `host`."""
    return f"{seat}{number}".encode()
