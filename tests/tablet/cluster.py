"""Three members as values, and leaders on them: scenarios say who can be reached, and what arrived where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.commit import Draft, Ledger, form, open_ledger, stored
from replitree.tablet.core.election import Candidate, NotElected, Won, stand
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.ids import BlobId, Generation, GroupId, Step
from replitree.tablet.group.member import Holdings, Reply, Request, Write, answer, with_blobs, without_blobs
from replitree.tablet.group.quorum import Ask, Quorum, over_members
from tests.tablet.building import GROUP, TABLET

T = TypeVar("T")

ONE_GROUP = Channels(TABLET, (((Generation(1), GROUP),), ((Generation(1), GROUP),)))
EVERYBODY = (0, 1, 2)


class Died(Exception):
    """A process is over."""


class Cluster:
    """Some groups of three members with a write quorum of two."""

    def __init__(self, channels: Channels = ONE_GROUP) -> None:
        self.channels = channels
        self.held = {group: [Holdings()] * 3 for group in channels.groups()}
        self.reachable: Iterable[int] = EVERYBODY
        self.asked = 0
        self.candidates = 0
        self._dies_after: int | None = None

    def ask(self, number: int, request: Request, group: GroupId = GROUP) -> Reply:
        """Let a member do something."""
        self.held[group][number], reply = answer(self.held[group][number], request)
        return reply

    def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure, with the members that can be reached."""
        return self.run_in_turn(procedure)[0]

    def run_in_turn(self, *procedures: Procedure[T]) -> list[T]:
        """Run procedures beside each other, a question of each in turn."""
        numbers = {group: Quorum(group, 3, 2) for group in self.held}
        running = {number: over_members(each, numbers) for number, each in enumerate(procedures)}
        outcomes, results = dict[int, Any](), dict[int, T]()
        while running:
            for number, asking in list(running.items()):
                try:
                    ask = asking.send(outcomes.get(number))
                except StopIteration as stop:
                    results[number] = stop.value
                    del running[number]
                    continue
                assert isinstance(ask, Ask)
                self.asked += 1
                outcomes[number] = self._outcome(ask)
        return [results[number] for number in range(len(procedures))]

    def _outcome(self, ask: Ask) -> tuple[Reply | None, ...]:
        """Ask the members that can be reached, in this order; the process may die between two of them."""
        replies = list[Reply | None]([None] * len(ask.requests))
        for number in self.reachable:
            request = ask.requests[number]
            if request is None:
                continue
            if self._dies_after is not None:
                if not self._dies_after:
                    raise Died
                self._dies_after -= 1
            replies[number] = self.ask(number, request, ask.group)
        return tuple(replies)

    def stand(self, generation: int | None = None, reachable: Iterable[int] = EVERYBODY) -> Won | NotElected:
        """Let a candidate stand while only some members can be reached."""
        self.reachable, self.candidates = reachable, self.candidates + 1
        assigned = None if generation is None else Generation(generation)
        result = self.run(stand(Candidate(self.channels, f"c{self.candidates}", assigned)))
        self.reachable = EVERYBODY
        return result

    def die(self, generation: int, reachable: Iterable[int], requests: int) -> None:
        """Let a candidate die when members have done so many requests; it may have stored its zero entry by then."""
        self._dies_after = requests
        with suppress(Died):
            self.stand(generation, reachable)
        self._dies_after, self.reachable = None, EVERYBODY

    def lead(self, generation: int | None = None, reachable: Iterable[int] = EVERYBODY) -> tuple[Ledger, list[str]]:
        """Let a candidate win; return its ledger, and the places that it accepted."""
        result = self.stand(generation, reachable)
        assert isinstance(result, Won), result
        return open_ledger(TABLET, result), [str(place) for place, _ in result.recovered.accepted]

    def commit(self, ledger: Ledger, draft: Draft | None = None, at: Sequence[int] = EVERYBODY) -> Ledger:
        """Commit something whose blobs reach some members only; the leader hears of it when they are enough."""
        ledger, blobs = form(ledger, Draft(b"x") if draft is None else draft)
        for blob, data in blobs:
            ledger = self.deliver(ledger, blob, data, at)
        return ledger

    def deliver(self, ledger: Ledger, blob: BlobId, data: bytes, at: Sequence[int]) -> Ledger:
        """Bring a blob to some members."""
        group = self.channels.group(blob.channel, blob.generation)
        for number in at:
            self.ask(number, Write(((blob, data),)), group)
        return stored(ledger, blob)[0] if len(at) > 1 else ledger

    def forget(self, blob: BlobId, at: Iterable[int] = EVERYBODY) -> None:
        """Lose a blob on some members, as if it had never been there."""
        for number in at:
            self.held[GROUP][number] = without_blobs(self.held[GROUP][number], (blob,))

    def rot(self, blob: BlobId, at: Iterable[int] = EVERYBODY) -> None:
        """Damage a blob on some members."""
        for number in at:
            self.held[GROUP][number] = with_blobs(self.held[GROUP][number], {blob: None})

    def hide(self, blob: BlobId, at: int) -> None:
        """Damage a blob on a member so that it can't tell any more which one it was."""
        held = without_blobs(self.held[GROUP][at], (blob,))
        self.held[GROUP][at] = replace(held, doubts=((blob, blob),))

    def copies(self, blob: BlobId) -> list[int]:
        """Return the members that have a blob."""
        return [number for number, each in enumerate(self.held[GROUP]) if each.index(blob) is not None]


def steps(*numbers: int) -> tuple[Step, ...]:
    """Name steps."""
    return tuple(Step(number) for number in numbers)
