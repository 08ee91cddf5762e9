"""The states of a model of a tablet, and the moves between them.

A state is a tuple of integers and tuples of them.  A candidate is two places: one in `stand`, which asks the group, and one in
`carry_out`, which asks the members for it; so ways that end with the same answer of the group meet again.  A leader is its
ledger and the puts that are on their way.

An operator that accepts a loss asks as a candidate does, and names who is away when it begins.

Moves, always in the same order: each seat begins, hears an answer, gives up waiting, agrees, commits, dies; a message that
nobody waits for any more arrives; a member goes away or comes back.  A message that can't change anything is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from replitree.tablet import commit, member, store
from replitree.tablet.collection import log_collection
from replitree.tablet.commit import Ledger
from replitree.tablet.effects import Collect, Overtaken, Procedure, Put, Stored
from replitree.tablet.election import Candidate, Elected, NotElected
from replitree.tablet.ids import BlobId, Cookie, Generation, Step
from replitree.tablet.member import Done, Holdings, Reply, Request, Sweep, with_blobs
from replitree.tablet.probing import Leads
from replitree.tablet.quorum import Ask, Quorum
from replitree.verify.kernel import END, Interner, Kernel
from replitree.verify.tablets.damage import rotting, with_hidden
from replitree.verify.tablets.drafts import draft_of
from replitree.verify.tablets.forgetting import is_dead
from replitree.verify.tablets.model import CHANNELS, GROUP, TABLET, Kind, Model
from replitree.verify.tablets.running import Agreement, Ended, carrying, looking, probing, standing
from replitree.verify.tablets.state import (
    ASKING,
    COLLECTING,
    IDLE,
    LEADING,
    NAMED,
    OVER,
    PENDING,
    READING,
    SILENT,
    UNASKED,
    Found,
    Loss,
    Move,
    Position,
    Told,
    Waiting,
    Work,
    World,
    columns_of,
    questions,
    replaced,
    with_seat,
)


class Space:
    """The states of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._numbers = model.quorum
        self._answer: Callable[[Holdings, Any], tuple[Holdings, Any]] = (
            store.answer if model.on_store else member.answer
        )
        self._stands, self._carries = Kernel(), Kernel()
        self.holdings: Interner[Holdings] = Interner()
        self.requests: Interner[Request] = Interner()
        self._replies: Interner[Reply] = Interner()
        self.ledgers: Interner[Ledger] = Interner()
        self._answers: dict[tuple[int, int], tuple[int, int]] = {}
        self._dead: dict[tuple[int, int], bool] = {}
        self._fresh = {END}
        self._in_order = list(range(model.members))
        self._asked: dict[tuple[int, int], int] = {}
        self._steps: dict[tuple[int, tuple[int, ...]], int] = {}
        self._past: dict[int, tuple[tuple[int, ...], ...]] = {}
        self._moves: dict[tuple[int, tuple[int, ...]], int] = {}

    def first(self) -> World:
        """Return the state in which it begins."""
        model = self.model
        nothing = self.holdings.number(Holdings())
        world = World(
            (nothing,) * model.members,
            (0,) * model.members,
            (IDLE,) * len(model.seats),
            (),
            (),
            (),
            (model.crashes, model.lost, model.away, model.rots),
        )
        if model.ahead:
            world = self._ahead(world, 0, model.prelude)
        for seat in range(1, 1 + model.relay):
            world = self._ahead(world, seat, len(model.seats[seat].commits))
        for number, blob in model.spoiled:
            world = self._changed(world, number, with_blobs(self.holdings[world.held[number]], {blob: None}))
        for number, begin, end in model.hidden:
            world = self._changed(world, number, with_hidden(self.holdings[world.held[number]], begin, end))
        return world._replace(late=self._collections(world) if model.has_operators else ())

    def _ahead(self, world: World, seat: int, commits: int) -> World:
        """Let a seat lead and commit without anything going wrong, all members answering."""
        while world.seats[seat][0] != LEADING:
            moves = self._begin(world, seat) if world.seats[seat] == IDLE else self._hear(world, seat)
            world = next(iter(moves))[0]
        for _ in range(commits):
            world = next(self._lead(world, seat))[0]
            while world.seats[seat][0] == LEADING and world.seats[seat][3]:
                world = next(after for after, move in self._lead(world, seat) if not move.is_asked)
        return world

    def _collections(self, world: World) -> tuple[tuple[int, int], ...]:
        return tuple(each for each in world.late if isinstance(self.requests[each[1]], Sweep))

    def canonical(self, world: World) -> World:
        """Return the state that stands for all that differ from it in the members' numbers only.

        A procedure that asks a second time knows who answered what the first time: that is reordered with the rest.
        """
        columns = [world.held, world.absent]
        for position in world.seats:
            for carry, asked in questions(position):
                columns.append(asked)
                if carry not in self._fresh:
                    columns += self._past_of(carry)
        late = [list[int]() for _ in world.held]
        for number, request in world.late:
            late[number].append(request)
        signatures = list(zip(*columns, late, strict=True))
        order = sorted(range(len(signatures)), key=signatures.__getitem__)
        return world if order == self._in_order else self._reordered(world, tuple(order))

    def _request(self, carry: int, number: int) -> int:
        """Return the number of what a procedure asks a member where it stands."""
        known = self._asked.get((carry, number))
        if known is None:
            known = self.requests.number(self._carries.effect(carry).requests[number])
            self._asked[carry, number] = known
        return known

    def _carried(self, carry: int, columns: tuple[int, ...]) -> int:
        """Return where a procedure stands when the members have said this."""
        known = self._steps.get((carry, columns))
        if known is None:
            known = self._steps[carry, columns] = self._carries.step(carry, self._outcome(columns))
        return known

    def _past_of(self, carry: int) -> tuple[tuple[int, ...], ...]:
        """Return what each member has answered to the questions of a procedure so far, question by question."""
        known = self._past.get(carry)
        if known is None:
            outcomes = self._carries.conversation(carry).outcomes
            known = tuple(
                tuple(-1 if each is None else self._replies.number(each) for each in told) for told in outcomes
            )
            self._past[carry] = known
        return known

    def _reordered(self, world: World, order: tuple[int, ...]) -> World:
        """Return the state with its members in another order."""

        def moved(column: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(column[number] for number in order)

        seats = list[Position]()
        for position in world.seats:
            if position[0] == ASKING:
                seats.append((ASKING, position[1], self._moved(position[2], order), moved(position[3])))
            elif position[0] == LEADING:
                works = (
                    work._replace(carry=self._moved(work.carry, order), columns=moved(work.columns))
                    for work in position[3]
                )
                seats.append((*position[:3], tuple(sorted(works))))
            else:
                seats.append(position)
        late = tuple(sorted((order.index(member), request) for member, request in world.late))
        return world._replace(held=moved(world.held), absent=moved(world.absent), seats=tuple(seats), late=late)

    def _moved(self, carry: int, order: tuple[int, ...]) -> int:
        """Return the place of a procedure that was told the same by members in another order."""
        if carry in self._fresh:
            return carry
        key = (carry, order)
        known = self._moves.get(key)
        if known is None:
            told = self._carries.conversation(carry)
            known = self._carries.begin(told.stage, *told.arguments)
            for outcome in told.outcomes:
                known = self._carries.step(known, tuple(outcome[number] for number in order))
            self._moves[key] = known
        return known

    # --- moves ----------------------------------------------------------------------------------------------------------

    def successors(self, world: World) -> Iterator[Found]:
        """Yield every state that a move leads to."""
        for seat, position in enumerate(world.seats):
            if position == IDLE:
                is_others_turn = self.model.in_turn and any(each[0] in (IDLE[0], ASKING) for each in world.seats[:seat])
                yield from () if is_others_turn else self._begin(world, seat)
            elif position[0] == ASKING:
                yield from self._hear(world, seat)
                yield from self._crash(world, seat)
            elif position[0] == LEADING:
                yield from self._lead(world, seat)
                yield from self._crash(world, seat)
        yield from self._arrive(world)
        yield from self._go_and_come(world)
        yield from self._rot(world)

    def _begin(self, world: World, seat: int) -> Iterator[Found]:
        generation = self.model.seats[seat].generation
        if self._is_operator(seat):
            place = self._stands.begin(looking, f"operator {seat}")
            named = tuple(NAMED if each else UNASKED for each in world.absent)
            world = with_seat(world, seat, (ASKING, place, END, named))
        else:
            place = self._stands.begin(standing, Candidate(CHANNELS, f"c{seat}", Generation(generation)))
        yield self._ask_group(world, seat, place, (self._name(seat), " begins"))

    def _is_operator(self, seat: int) -> bool:
        return self.model.seats[seat].is_operator

    def _name(self, seat: int) -> str:
        return (
            f"operator {seat}" if self._is_operator(seat) else f"candidate {seat} ({self.model.seats[seat].generation})"
        )

    def _named(self, world: World, seat: int) -> tuple[int, ...]:
        """Return columns that say whom an operator has named; nothing for candidates."""
        return world.seats[seat][3] if self._is_operator(seat) else ()

    def _numbers_for(self, named: tuple[int, ...]) -> Quorum:
        """Return the numbers of the group for a seat: an operator must hear everybody whom it has not named."""
        return replace(self._numbers, read_min=len(named) - named.count(NAMED)) if named else self._numbers

    def _ask_group(self, world: World, seat: int, place: int, told: Told) -> Found:
        """Go on at a place of `stand`: ask the members for the group, or end."""
        effect, named = self._stands.effect(place), self._named(world, seat)
        if isinstance(effect, Ended):
            return self._end(world, seat, effect, told)
        if isinstance(effect, Agreement):
            return self._ask_operator(world, seat, place, effect, told)
        carry = self._carries.begin(carrying, self._numbers_for(named), effect, self.model.on_store)
        self._fresh.add(carry)
        return self._ask_members(world, seat, place, carry, told)

    def _ask_operator(self, world: World, seat: int, place: int, effect: Agreement, told: Told) -> Found:
        """Let the operator think about it; no member is asked."""
        columns = tuple(NAMED if each == NAMED else UNASKED for each in self._named(world, seat))
        told = (*told, "; it would lose ", effect.found.unreadable)
        return with_seat(world, seat, (ASKING, place, END, columns)), Move(told, probes=("loss seen",))

    def _ask_members(self, world: World, seat: int, place: int, carry: int, told: Told) -> Found:
        """Go on at a place of `carry_out`: wait for the members, or hand the outcome to `stand`."""
        effect = self._carries.effect(carry)
        if isinstance(effect, Ended):
            return self._ask_group(world, seat, self._stands.step(place, effect.value), told)
        position = (ASKING, place, carry, columns_of(effect, self._named(world, seat)))
        return with_seat(world, seat, position), Move(told)

    def _end(self, world: World, seat: int, ended: Ended, told: Told) -> Found:
        result: Elected | NotElected = ended.value
        if isinstance(result, NotElected):
            told = (*told, "; it gives up: ", result.reason)
            probe = "refused" if self._is_operator(seat) else "not elected"
            return with_seat(world, seat, OVER), Move(told, election=result, probes=(probe,))
        places = tuple((int(place[0]), int(place[1])) for place, _ in result.recovered.accepted)
        after = world._replace(elected=(*world.elected, (int(result.generation), places)))
        if ended.agreed is not None:
            loss = Loss(ended.agreed, self._asked_of(world, seat))
            told = (*told, "; the loss is accepted, what stays is ", places)
            return with_seat(after, seat, OVER), Move(told, election=result, probes=("loss accepted",), loss=loss)
        ledger = self.ledgers.number(commit.open_ledger(TABLET, result))
        after = with_seat(after, seat, (LEADING, ledger, 0, ()))
        probes = (*(("accepted",) if places else ()), *(("declined",) if result.recovered.declined else ()))
        return after, Move((*told, "; it leads, with ", places), election=result, probes=probes)

    def _asked_of(self, world: World, seat: int) -> tuple[int, ...]:
        """Return what each member holds that an operator has not named."""
        named = self._named(world, seat)
        return tuple(held for held, column in zip(world.held, named, strict=True) if column != NAMED)

    # --- a candidate hears ------------------------------------------------------------------------------------------------

    def _hear(self, world: World, seat: int) -> Iterator[Found]:
        _, place, carry, columns = world.seats[seat]
        if carry == END:
            yield self._ask_group(world, seat, self._stands.step(place, None), (self._name(seat), " agrees"))
            return
        for told, after, replies, over in self._listen(world, (carry, columns), (self._name(seat),)):
            if over:
                carried = self._carried(carry, replies)
                yield self._ask_members(self._leave_late(after, carry, replies), seat, place, carried, told)
            else:
                yield with_seat(after, seat, (ASKING, place, carry, replies)), Move(told)

    def _listen(self, world: World, waiting: Waiting, who: Told) -> Iterator[tuple[Told, World, tuple[int, ...], bool]]:
        """Yield what may happen to a question: (for people, the state, its columns, whether it is answered)."""
        carry, columns = waiting
        ask = self._carries.effect(carry)
        present = [number for number, column in enumerate(columns) if column == PENDING and not world.absent[number]]
        for number in present:
            request = self._request(carry, number)
            after, reply = self._deliver(world, number, request)
            heard = replaced(columns, number, reply)
            asked = type(ask.requests[number]).__name__
            said = (*who, ": member ", number, " answers ", self._replies[reply], " to ", asked)
            yield said, after, heard, self._is_over(ask, heard)
            if world.left[1]:
                lost = replaced(columns, number, SILENT)
                after = after._replace(left=(world.left[0], world.left[1] - 1, *world.left[2:]))
                yield (*said, ", which is lost"), after, lost, self._is_over(ask, lost)
        if not present and PENDING in columns:
            yield (*who, " waits no longer"), world, columns, True

    def _deliver(self, world: World, number: int, request: int) -> tuple[World, int]:
        """Let a member do what it is asked; return the number of its reply."""
        key = (world.held[number], request)
        known = self._answers.get(key)
        if known is None:
            held, reply = self._answer(self.holdings[key[0]], self.requests[request])
            known = self._answers[key] = self.holdings.number(held), self._replies.number(reply)
        if known[0] == key[0]:
            return world, known[1]
        world = world._replace(held=replaced(world.held, number, known[0]))
        return self._without_dead(world, number), known[1]

    def _is_over(self, ask: Ask, columns: tuple[int, ...]) -> bool:
        if PENDING not in columns:
            return True
        return sum(column >= 0 and isinstance(self._replies[column], Done) for column in columns) >= ask.wanted

    def _outcome(self, columns: tuple[int, ...]) -> tuple[Reply | None, ...]:
        return tuple(self._replies[column] if column >= 0 else None for column in columns)

    # --- a leader ---------------------------------------------------------------------------------------------------------

    def _lead(self, world: World, seat: int) -> Iterator[Found]:
        _, number, done, puts = world.seats[seat]
        ledger = self.ledgers[number]
        commits, awaited = self.model.seats[seat].commits, self.model.seats[seat].after
        is_time = not awaited or any(generation == awaited for generation, _ in world.elected)
        if is_time and done < len(commits) and ledger.failed_at is None and ledger.has_room:
            yield self._begin_commit(world, seat, commits[done])
        for index, work in enumerate(puts):
            others = (*puts[:index], *puts[index + 1 :])
            who = (self._name(seat), ", ", work.blob)
            for told, after, columns, over in self._listen(world, (work.carry, work.columns), who):
                heard = work._replace(columns=columns)
                if over:
                    yield self._work_goes_on(after, seat, heard, others, told)
                else:
                    position = (LEADING, number, done, tuple(sorted((*others, heard))))
                    yield with_seat(after, seat, position), Move(told)

    def _begin_commit(self, world: World, seat: int, kind: Kind) -> Found:
        """Let a leader do the next thing that clients want."""
        _, number, done, puts = world.seats[seat]
        ledger = self.ledgers[number]
        if kind is Kind.READ:
            blob = BlobId(TABLET, READING, ledger.generation, Step(done), Cookie(0))
            works = [self._work(blob, probing, ledger.generation)._replace(seen=world.acked)]
        else:
            ledger, blobs = commit.form(ledger, draft_of(ledger, kind, done))
            works = [self._work(blob, carrying, Put(GROUP, blob, data)) for blob, data in blobs]
        position = (LEADING, self.ledgers.number(ledger), done + 1, tuple(sorted((*puts, *works))))
        return with_seat(world, seat, position), Move((self._name(seat), " commits ", kind.value), is_asked=True)

    def _work(self, blob: BlobId, what: Callable[..., Procedure[None]], asked: object) -> Work:
        carry = self._carries.begin(what, self._numbers, asked, self.model.on_store)
        self._fresh.add(carry)
        return Work(blob, carry, columns_of(self._carries.effect(carry)))

    def _work_goes_on(self, world: World, seat: int, work: Work, others: tuple[Work, ...], told: Told) -> Found:
        """Take what the members said: ask them again, or end."""
        _, number, done, _ = world.seats[seat]
        world = self._leave_late(world, work.carry, work.columns)
        carry = self._carried(work.carry, work.columns)
        effect = self._carries.effect(carry)
        if not isinstance(effect, Ended):
            again = work._replace(carry=carry, columns=columns_of(effect))
            return with_seat(world, seat, (LEADING, number, done, tuple(sorted((*others, again))))), Move(told)
        if work.blob.channel == READING:
            return self._read_ended(world, seat, work, others, (effect.value, told))
        if work.blob.channel == COLLECTING:
            return self._settled(world, seat, self.ledgers[number], done, others), Move(told)
        return self._put_ended(world, seat, work.blob, others, (effect.value, told))

    def _settled(self, world: World, seat: int, ledger: Ledger, done: int, others: tuple[Work, ...]) -> World:
        """Return the state in which a leader goes on, or is over.

        It is over, too, when it failed and nothing on its way can be acknowledged: then nobody waits for its puts.
        """
        is_done = not others and (ledger.failed_at is not None or done == len(self.model.seats[seat].commits))
        is_put = all(work.blob.channel < COLLECTING for work in others)
        if ledger.is_over and is_put and not self.model.on_store:
            is_done = True
            for work in others:
                world = self._leave_late(world, work.carry, work.columns)
        return with_seat(world, seat, OVER if is_done else (LEADING, self.ledgers.number(ledger), done, others))

    def _read_ended(
        self, world: World, seat: int, work: Work, others: tuple[Work, ...], ended: tuple[object, Told]
    ) -> Found:
        """Show a client what counts, if the probe says that nobody later was active; what was shown must stay.

        What lies before the leader's snapshot is in it.
        """
        _, number, done, _ = world.seats[seat]
        ledger, (outcome, told) = self.ledgers[number], ended
        world = self._settled(world, seat, ledger, done, others)
        if not isinstance(outcome, Leads):
            return world, Move((*told, "; nothing is shown"), probes=("read refused",))
        found = next(places for generation, places in world.elected if generation == ledger.generation)
        own = tuple(place for place in world.acked if place[0] == ledger.generation or place < ledger.snapshot)
        shown = tuple(sorted({*found, *own}))
        world = world._replace(acked=tuple(sorted({*world.acked, *shown})))
        return world, Move((*told, "; it shows ", shown), probes=("read",), read=(work.seen, shown))

    def _put_ended(
        self, world: World, seat: int, blob: BlobId, others: tuple[Work, ...], ended: tuple[object, Told]
    ) -> Found:
        """Let the ledger take what became of a put, and clients hear."""
        _, number, done, _ = world.seats[seat]
        outcome, told = ended
        ledger, steps, probes = self.ledgers[number], tuple[Step, ...](), tuple[str, ...]()
        if isinstance(outcome, Stored):
            before = ledger.snapshot
            ledger, steps = commit.stored(ledger, blob)
            if self.model.collects and ledger.snapshot != before:
                world, others = self._collect(world, ledger, others)
        else:
            ledger = commit.failed(ledger, blob.step)
            probes = ("deposed",) if isinstance(outcome, Overtaken) else ("in doubt",)
        if any(generation > blob.generation for generation, _ in world.elected) and steps:
            probes += ("late acknowledgement",)
        committed = tuple((int(blob.generation), int(step)) for step in steps)
        world = world._replace(acked=tuple(sorted({*world.acked, *committed})))
        told = (*told, "; ", blob, " ", type(outcome).__name__.lower(), ", committed ", committed)
        return self._settled(world, seat, ledger, done, others), Move(told, committed, probes=probes)

    def _collect(self, world: World, ledger: Ledger, others: tuple[Work, ...]) -> tuple[World, tuple[Work, ...]]:
        """Send the collection of the log that a confirmed snapshot allows to every member; nobody waits for it.

        On a store it takes several requests, and so the leader's time.
        """
        collection = log_collection(ledger, ledger.snapshot.step)
        assert collection is not None
        if self.model.on_store:
            blob = BlobId(TABLET, COLLECTING, ledger.generation, ledger.snapshot.step, Cookie(0))
            return world, tuple(sorted((*others, self._work(blob, carrying, Collect(GROUP, collection)))))
        request = self.requests.number(Sweep(collection))
        late = {*world.late, *((number, request) for number in range(self.model.members))}
        return world._replace(late=tuple(sorted(late))), others

    # --- what nobody waits for ----------------------------------------------------------------------------------------------

    def _leave_late(self, world: World, carry: int, columns: tuple[int, ...]) -> World:
        """Leave the messages that were not answered to arrive at any time."""
        more = [
            (number, request)
            for number, column in enumerate(columns)
            if column == PENDING and not self._is_dead(world.held[number], request := self._request(carry, number))
        ]
        return world._replace(late=tuple(sorted({*world.late, *more}))) if more else world

    def _crash(self, world: World, seat: int) -> Iterator[Found]:
        """Let a process die that waits for answers; if it waits for none, that is the same as a process that does nothing."""
        waiting = questions(world.seats[seat])
        if not world.left[0] or not waiting:
            return
        for carry, columns in waiting:
            world = self._leave_late(world, carry, columns)
        world = with_seat(world, seat, OVER)._replace(left=(world.left[0] - 1, *world.left[1:]))
        yield world, Move((self._name(seat), " dies"))

    def _arrive(self, world: World) -> Iterator[Found]:
        for message in world.late:
            number, request = message
            if not world.absent[number]:
                without = world._replace(late=tuple(each for each in world.late if each != message))
                after, reply = self._deliver(without, number, request)
                asked = type(self.requests[request]).__name__
                told = (asked, " arrives late at member ", number, ": ", self._replies[reply])
                yield after, Move(told, probes=("late arrival",))

    def _rot(self, world: World) -> Iterator[Found]:
        """Let an entry of a member become unreadable, and maybe its name, too."""
        if not world.left[3]:
            return
        left = (*world.left[:3], world.left[3] - 1)
        for number, held in enumerate(world.held):
            for blob in rotting(self.holdings[held], has_zeros=self.model.rots_zeros):
                damaged = with_blobs(self.holdings[held], {blob: None})
                told = (blob, " rots on member ", number)
                yield self._changed(world, number, damaged)._replace(left=left), Move(told, probes=("rot",))
                if self.model.hides:
                    hidden = with_hidden(self.holdings[held], blob, blob)
                    after = self._changed(world, number, hidden)._replace(left=left)
                    yield after, Move((*told, ", which can't tell it any more"), probes=("hidden",))

    def _changed(self, world: World, number: int, held: Holdings) -> World:
        return world._replace(held=replaced(world.held, number, self.holdings.number(held)))

    def _without_dead(self, world: World, number: int) -> World:
        """Forget the late messages to a member that can't change anything any more."""
        held = world.held[number]
        late = tuple(each for each in world.late if each[0] != number or not self._is_dead(held, each[1]))
        return world if len(late) == len(world.late) else world._replace(late=late)

    def _is_dead(self, held: int, request: int) -> bool:
        key = (held, request)
        known = self._dead.get(key)
        if known is None:
            known = self._dead[key] = is_dead(self.holdings[held], self.requests[request])
        return known

    def _go_and_come(self, world: World) -> Iterator[Found]:
        """Let members go away when somebody waits for nobody else, and come back when there is a message for them.

        At other moments an absence is the same as messages that take their time; but an operator that begins sees who is away.
        """
        asked = [columns for position in world.seats for _, columns in questions(position)]
        awaited, addressed = set[int](), {number for number, _ in world.late}
        for columns in asked:
            pending = [number for number, column in enumerate(columns) if column == PENDING]
            present = [number for number in pending if not world.absent[number]]
            addressed.update(pending)
            awaited.update(present if len(present) <= world.left[2] else ())
        if any(position == IDLE and self._is_operator(seat) for seat, position in enumerate(world.seats)):
            addressed.update(self._in_order)
            awaited.update(self._in_order if world.left[2] else ())
        for number, is_absent in enumerate(world.absent):
            if is_absent and number in addressed:
                yield world._replace(absent=replaced(world.absent, number, 0)), Move(("member ", number, " is back"))
            elif not is_absent and number in awaited:
                left = (*world.left[:2], world.left[2] - 1, world.left[3])
                after = world._replace(absent=replaced(world.absent, number, 1), left=left)
                yield after, Move(("member ", number, " goes away"), probes=("away",))
