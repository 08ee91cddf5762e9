"""Collection over whole histories: leaders that follow each other, members that miss commands, blobs needed for long."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replitree.tablet.core.collection import Garbage, collect, inherited, noted, take, told
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.group.effects import Collected
from replitree.tablet.group.ids import NOTHING, BlobId, Channel, GenStep, Step
from tests.examples import examples
from tests.tablet.building import GROUP, TABLET, at, data_id
from tests.tablet.cluster import EVERYBODY, Cluster

MEMBERS = st.sampled_from([(), (0,), (0, 1), (1, 2), EVERYBODY])
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.just(())),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("collect"), MEMBERS),
        st.tuples(st.just("snapshot"), st.just(())),
        st.tuples(st.just("succeed"), st.just(())),
    ),
    max_size=24,
)


class History:
    """A tablet whose entries create blobs and leave them; every member gets every blob, not every command."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.ledger = self.cluster.lead()[0]
        self.needed: list[BlobId] = []
        self.step = 0
        self.log: list[tuple[GenStep, LogEntry]] = []
        self.garbage: Garbage = inherited(TABLET, self.ledger.generation, ())

    def enter(
        self, created: tuple[BlobId, ...] = (), left: tuple[BlobId, ...] = (), *, is_snapshot: bool = False
    ) -> None:
        """Commit an entry; a snapshot takes the place of those before."""
        entry = LogEntry(NOTHING, Step(0), is_snapshot=is_snapshot, gc_discovered=created, gc_left=left)
        place = at(self.ledger.generation, self.step)
        self.log = [*([] if is_snapshot else self.log), (place, entry)]
        self.garbage = noted(self.garbage, place, entry)

    def create(self) -> None:
        """Store a blob that is needed from now on."""
        self.step += 1
        blob = data_id(self.ledger.generation, self.step)
        self.cluster.deliver(self.ledger, blob, b"body", EVERYBODY)
        self.needed.append(blob)
        self.enter((blob,))

    def leave(self, number: int) -> None:
        """Need a blob no longer."""
        if number < len(self.needed):
            self.step += 1
            self.enter(left=(self.needed.pop(number),))

    def snapshot(self) -> None:
        """Say again what is needed."""
        self.step += 1
        self.enter(tuple(self.needed), is_snapshot=True)

    def succeed(self) -> None:
        """Let another leader take over, which knows the log alone."""
        self.ledger, self.step = self.cluster.lead()[0], 0
        self.garbage = inherited(TABLET, self.ledger.generation, tuple(self.log))

    def collect(self, members: tuple[int, ...]) -> None:
        """Collect all that may go, while only some members can be reached."""
        self.garbage, commands = take(self.garbage, at(self.ledger.generation, self.step), (Channel(1),))
        self.cluster.reachable = members
        outcomes = [self.cluster.run(collect(self.cluster.channels, each, everywhere=False)) for each in commands]
        if outcomes == [Collected()] * len(commands):
            self.garbage = told(self.garbage)
        self.cluster.reachable = EVERYBODY

    def held(self) -> list[list[BlobId]]:
        """Return the data that each member has."""
        return [[blob for blob in each.names if blob.channel == 1] for each in self.cluster.held[GROUP]]


def lived(moves: list[tuple[str, object]]) -> History:
    """Live through a history; what is needed is there at any time."""
    history = History()
    for name, argument in moves:
        getattr(history, name)(*(() if argument == () and name != "collect" else (argument,)))
        for held in history.held():
            assert set(history.needed) <= set(held)
    return history


@settings(max_examples=examples(100), deadline=None)
@given(MOVES)
def test_what_is_needed_stays_and_what_is_older_goes_from_every_member(moves: list[tuple[str, object]]) -> None:
    history = lived(moves)
    history.create()
    history.collect(EVERYBODY)
    for held in history.held():
        assert [blob for blob in held if blob <= history.needed[0]] == history.needed[:1]


@settings(max_examples=examples(100), deadline=None)
@given(MOVES)
def test_leader_that_goes_on_lets_everything_go_that_nobody_needs(moves: list[tuple[str, object]]) -> None:
    history = lived([each for each in moves if each[0] != "succeed"])
    history.create()
    history.collect(EVERYBODY)
    for held in history.held():
        assert held == history.needed
