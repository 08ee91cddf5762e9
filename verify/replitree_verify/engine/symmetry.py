"""Symmetry reduction: states that differ by names only are one.

Replicas with the same work, and requests and tokens with the same role, are interchangeable: a *permutation* of these names
that leaves the first state as it is takes every way to a way.  So of the states that the permutations make of each other
one is visited: whichever was met first.  They are told to be the same by the least of their fingerprints.

*Why that is sound.*  Let p be a bijection of states that leaves the first state and the invariants as they are, and takes the
moves of every state s to those of p(s).  Then the states that can be reached from s and from p(s) are the same but for p, and
a search that visits one of them breaks the same invariants as one that visits both.

*That names do not matter is proved, not believed.*  Procedures go through replicas in the order of names, sources of a fetch
are tried in that order, ties are broken by it.  So for each footprint that is met (`space`) the moves of the renamed thread in
the renamed state are worked out by the production procedures too, and must be the renamed moves; and no two values may become
one.  If not, `NotSymmetric` says where, and the search is done again without these permutations.  What happens from outside
(processes that die, sessions that end, late requests) is the same for all by the way it is written.

*With ample steps*: what is ample in s is so in p(s), with other names; which of several ample steps is the first in the order
of threads does not matter.  The ways of threads that a search has met (`Space.ways`) are those of the renamed threads too,
because their moves are worked out for the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import permutations
from typing import Any

from replitree_verify.engine.fingerprints import Fingerprints, summand_of
from replitree_verify.engine.initial import first_world
from replitree_verify.engine.moves import FLIGHT, PRESENT, TREE, Met, Move, World
from replitree_verify.engine.renaming import Names, Renaming
from replitree_verify.engine.space import Space
from replitree_verify.world.kernel import END
from replitree_verify.world.model import Model


class Kind(IntEnum):
    """What stands at a position of a state."""

    PLACE = 0
    TREE = 1
    FLIGHT = 2
    ANSWER = 3
    DISK = 4
    MEMORY = 5
    VIEW = 6
    NUMBER = 7


class NotSymmetric(Exception):
    """Names matter: what follows from a state is not what follows from it with other names."""


class Symmetry:
    """The permutations of names under which a space is the same.

    Parameters
    ----------
    space
        Whose states; `Space.met` has to be a list.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        first = first_world(space)
        # A permutation that moves the first state would compare states that cannot be reached.
        found = (Permutation(space, names, threads) for names, threads in _candidates(space))
        self.permutations = tuple(each for each in found if each.keeps(first))
        self._fingerprints = [space.fingerprints, *(each.fingerprints for each in self.permutations)]

    def fingerprint(self, world: World) -> int:
        """Return the fingerprint of a state and of all that differ from it by names only."""
        return min(each.of(world) for each in self._fingerprints)

    def prove(self) -> None:
        """Compare what was met since the last call with what is met with other names.

        Raises
        ------
        NotSymmetric
            They differ.
        """
        met = self._space.met
        while met:
            each = met.pop()
            for permutation in self.permutations:
                permutation.compare(each)


class Permutation:
    """What becomes of the states of a space when names are exchanged.

    Parameters
    ----------
    space, names, threads
        The space; which name stands for which; the number of the thread that each thread becomes.
    """

    def __init__(self, space: Space, names: Names, threads: tuple[int, ...]) -> None:
        self._space, self._names, self._threads = space, names, threads
        self._renaming = Renaming(names)
        # What stands at each position, and which position it goes to.
        kinds, goes = [Kind.NUMBER] * space.size, list(range(space.size))
        kinds[TREE], kinds[FLIGHT] = Kind.TREE, Kind.FLIGHT
        for request, position in space.answer_at.items():
            kinds[position], goes[position] = Kind.ANSWER, space.answer_at[names.requests.get(request, request)]
        for number, name in enumerate(space.model.replicas):
            position = space.disk_at[number]
            kinds[position] = Kind.DISK
            goes[position] = space.disk_at[space.model.replicas.index(names.replicas[name])]
        for seat, other in enumerate(names.seats):
            for kind, places in ((Kind.MEMORY, space.memory_at), (Kind.VIEW, space.view_at)):
                kinds[places[seat]], goes[places[seat]] = kind, places[other]
        for thread, number in zip(space.threads, threads, strict=True):
            kinds[thread.position], goes[thread.position] = Kind.PLACE, space.threads[number].position
        assert sorted(goes) == list(range(space.size))
        self._kinds, self._positions = kinds, goes
        self._images: list[dict[int, int]] = [{} for _ in Kind]
        self._origins: list[dict[int, int]] = [{} for _ in Kind]
        self._become(Kind.PLACE, END, END)
        self._become(Kind.VIEW, PRESENT, PRESENT)
        self.fingerprints = Fingerprints([_RenamedSummands(self, position) for position in range(space.size)])

    # --- images -----------------------------------------------------------------------------------------------------------

    def keeps(self, world: World) -> bool:
        """Whether a state stays as it is."""
        try:
            return self.world(world) == world
        except NotSymmetric:
            return False

    def world(self, world: World) -> World:
        """Return a state with other names."""
        after = [0] * len(world)
        for position, number in enumerate(world):
            after[self._positions[position]] = self.number(position, number)
        return tuple(after)

    def summand(self, position: int, number: int) -> int:
        """Return the summand that what stands at a position has in the fingerprint with other names."""
        return summand_of(self._positions[position], self.number(position, number))

    def number(self, position: int, number: int) -> int:
        """Return what becomes of the number at a position."""
        kind = self._kinds[position]
        if kind == Kind.NUMBER:
            return number  # the faults that are left have no names
        found = self._images[kind].get(number)
        if found is not None:
            return found
        space, value = self._space, self._renaming.value
        match kind:
            case Kind.PLACE:
                found = self._place(number)
            case Kind.TREE | Kind.VIEW:
                found = space.trees.number(value(space.trees[number]))
            case Kind.FLIGHT:
                renamed = (space.requests.number(value(space.requests[each])) for each in space.flights[number])
                found = space.flights.number(tuple(sorted(renamed)))
            case Kind.ANSWER:
                found = space.replies.number(value(space.replies[number]))
            case Kind.DISK:
                found = space.disks.number(value(space.disks[number]))
            case _:
                found = space.memories.number(value(space.memories[number]))
        self._become(kind, number, found)
        return found

    def _become(self, kind: Kind, number: int, image: int) -> None:
        """Remember what becomes of a number."""
        # Two states must not become one: a search would then visit one of them for both.
        if self._origins[kind].setdefault(image, number) != number:
            raise NotSymmetric("two values become one when names are exchanged")
        self._images[kind][number] = image

    def _place(self, place: int) -> int:
        """Return the place in the renamed procedure that was told the same, with other names."""
        # Back to the nearest place whose image is known, then forward again: recursion would be as deep as a conversation.
        kernel, images, told = self._space.kernel, self._images[Kind.PLACE], list[tuple[int, Any]]()
        while place not in images:
            before, outcome = kernel.came_from(place)
            told.append((place, outcome))
            if not isinstance(before, int):
                assert isinstance(outcome, tuple)
                begun = kernel.begin(before, *self._renaming.arguments(before.__name__, outcome))
                self._become(Kind.PLACE, place, begun)
                told.pop()
                break
            place = before
        here = images[place]
        for after, outcome in reversed(told):
            effect, asked = kernel.effect(place), kernel.effect(here)
            try:
                here = kernel.step(here, self._renaming.outcome(effect, outcome, asked))
            except Exception as error:  # the procedure has asked for something else, and chokes on this outcome
                raise NotSymmetric(f"{effect} can't end as it would with other names: {error!r}") from error
            self._become(Kind.PLACE, after, here)
            place = after
        return here

    # --- the proof --------------------------------------------------------------------------------------------------------

    def compare(self, met: Met) -> None:
        """Compare the moves of a thread in a state with those of the renamed thread in the renamed state.

        Raises
        ------
        NotSymmetric
            They differ.
        """
        threads = self._space.threads
        other = threads[self._threads[threads.index(met.thread)]]
        there = self._space.moves(other, self.world(met.world))
        renamed = []
        for move in met.moves:
            sent = move.sent
            if sent >= 0:
                sent = self._space.requests.number(self._renaming.value(self._space.requests[sent]))
            seat, changes, answers = self._names.seats[move.seat], self._all(move.changes), self._all(move.answers)
            renamed.append(_done_by(move, seat, changes, answers, sent))
        # As sets: in which order a thread's moves are worked out may depend on names, and leads to the same states.
        if sorted(renamed) != sorted(map(_done_by, there)):
            effect = self._space.kernel.effect(met.world[met.thread.position])
            raise NotSymmetric(f"{met.thread.name} and {other.name} do not do the same at {effect}")

    def _all(self, changes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(self._positions[position], self.number(position, number)) for position, number in changes]


class _RenamedSummands(dict[int, int]):
    """The summands of the numbers at one position when names are exchanged."""

    def __init__(self, permutation: Permutation, position: int) -> None:
        super().__init__()
        self._permutation = permutation
        self._position = position

    def __missing__(self, number: int) -> int:
        summand = self[number] = self._permutation.summand(self._position, number)
        return summand


def _done_by(
    move: Move,
    seat: int | None = None,
    changes: Iterable[tuple[int, int]] | None = None,
    answers: Iterable[tuple[int, int]] | None = None,
    sent: int | None = None,
) -> tuple[Any, ...]:
    """Return what a move does, in an order."""
    return (
        move.seat if seat is None else seat,
        tuple(sorted(move.changes if changes is None else changes)),
        tuple(sorted(move.answers if answers is None else answers)),
        move.sent if sent is None else sent,
        # Not the text of a breach, which has names in it.
        *(move.cost, move.dies, move.moves_tree, move.own_lag, move.breach is None),
    )


# --- which there may be -------------------------------------------------------------------------------------------------------


_BEGINS_WITH = {"insert": "accept_insert", "command": "accept_command", "read": "begin_read"}
"""The first stage of threads whose arguments have numbers of requests."""


def _candidates(space: Space) -> Iterator[tuple[Names, tuple[int, ...]]]:
    """Return the permutations of names, but for the one that changes nothing, under which every thread becomes a thread."""
    for names in _permutations(space.model):
        renaming = Renaming(names)
        by_work = {(thread.seat, thread.kind, thread.arguments): n for n, thread in enumerate(space.threads)}
        wanted = [
            (
                names.seats[thread.seat],
                thread.kind,
                # The stage that a thread begins with says which of its arguments are requests; the first is the replica.
                renaming.arguments(_BEGINS_WITH.get(thread.kind, ""), (None, *thread.arguments))[1:],
            )
            for thread in space.threads
        ]
        threads = tuple(by_work.get(work, -1) for work in wanted)
        if -1 not in threads and len({*threads}) == len(threads):
            yield names, threads


def _permutations(model: Model) -> Iterator[Names]:
    """Return the ways to exchange seats, each with its replica, and requests, each with its token."""
    seats, replicas = [name for name, _ in model.seats], dict(model.seats)
    for others in permutations(seats):
        named = dict(zip(seats, others, strict=True))
        of_replicas = {replicas[seat]: replicas[other] for seat, other in named.items()}
        # A replica of two seats can't become two, and one that is called as a seat has to go where that seat goes.
        if len({*of_replicas.values()}) < len(of_replicas) or any(named.get(a, b) != b for a, b in of_replicas.items()):
            continue
        numbers = tuple(seats.index(named[seat]) for seat in seats)
        for order in permutations(model.requests):
            requests = dict(zip(model.requests, order, strict=True))
            tokens = _tokens(model, requests)
            if tokens is not None and (others != tuple(seats) or order != model.requests):
                yield Names(named | of_replicas, requests, tokens, numbers)


def _tokens(model: Model, requests: dict[int, int]) -> dict[str, str] | None:
    """Return which token stands for which; None when one would have to stand for two, or inserts for something else."""
    tokens: dict[str, str] = {}
    for request, token in model.tokens.items():
        other = model.tokens.get(requests[request])
        if other is None or tokens.setdefault(token, other) != other:
            return None
        # The numbers of batches have an order, which no exchange of names keeps.
        if model.batches.get(request) != model.batches.get(requests[request]):
            return None
    return tokens if len({*tokens.values()}) == len(tokens) else None
