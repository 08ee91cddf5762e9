"""What a puller has read and not pulled yet: parts that are received ahead, and ends of quorums that are told at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack

import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, FailEntry, GetEntry, SettleEntry, encode_entry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.insert.quorum import QuorumEnded, Replicas
from replitree.replica.insert import appends
from replitree.replica.insert.appends import Appends
from replitree.replica.insert.quorums import ALL, Wish
from replitree.replica.kit.live_replicas import LiveReplicas
from replitree.replica.perform.exchange import Exchange, Peer
from replitree.replica.perform.look_ahead import AHEAD_AT_ONCE, AHEAD_BYTES_MAX, LookAhead
from replitree.replica.perform.received_ahead import AHEAD_PARTS_MAX, ReceivedAhead
from replitree.replica.table import workers
from replitree.storage.disk.fetch import ReceivedPart
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from tests.replica.inprocess import TOKEN, InProcessCluster, as_stream, rows
from tests.waiting import wait_for

TABLE = TablePlace("/t")


# --- the puller's look ------------------------------------------------------------------------------------------------------


def insert(replica: str, size: int = 10, quorum: int = 2) -> GetEntry:
    parts = (fx.StagedPart("p", 1, size, "h"), fx.StagedPart("q", 1, 10, "i"))
    return GetEntry(replica, fx.StagingId("s"), parts, (fx.BlockId("a"),), format=3, quorum=quorum)


def looked_at(*entries: Entry | None) -> list[object]:
    """Return what follows from a look at entries that begin at index 5."""
    found: list[object] = []
    paths = [layout.log_entry(TABLE, 5 + i) for i in range(len(entries))]
    nodes = [None if entry is None else fx.Node(encode_entry(entry), fx.Version(0)) for entry in entries]
    LookAhead("r1", found.append, found.append).read(fx.LogIndex(5), paths, nodes)
    return found


def test_small_parts_of_another_replicas_quorum_insert_are_received_ahead() -> None:
    assert looked_at(insert("r2")) == [fx.FetchPart("p_5_5_0", "h", ("r2",)), fx.FetchPart("q_5_5_0", "i", ("r2",))]
    assert looked_at(insert("r2", size=AHEAD_BYTES_MAX + 1)) == [fx.FetchPart("q_5_5_0", "i", ("r2",))]


def test_many_parts_are_left_to_be_fetched_as_a_bundle() -> None:
    inserts = [insert("r2")] * (AHEAD_AT_ONCE // 2)
    assert len(looked_at(*inserts)) == AHEAD_AT_ONCE
    assert looked_at(*inserts, insert("r2")) == []


def test_ones_own_insert_and_one_without_a_quorum_are_not() -> None:
    assert looked_at(insert("r1"), GetEntry("r2", fx.StagingId("s"), (fx.StagedPart("p", 1, 1, "h"),), ())) == []


def test_the_end_of_a_quorum_is_told_with_its_own_index() -> None:
    settle = SettleEntry("r2", fx.StagingId("s"), 3, ("r1", "r2"))
    fail = FailEntry("r1", fx.StagingId("s"), 4, ("p",))
    assert looked_at(settle, fail) == [QuorumEnded(fx.LogIndex(5), settle), QuorumEnded(fx.LogIndex(6), fail)]


def test_what_is_behind_a_gap_counts_for_nothing() -> None:
    assert looked_at(None, SettleEntry("r2", fx.StagingId("s"), 3, ("r1", "r2"))) == []


# --- parts that are received ahead -------------------------------------------------------------------------------------------


@pytest.fixture
def fetching(cluster: InProcessCluster) -> Iterator[Exchange]:
    """What fetches for r2; nobody else is known than r1."""
    first, second = cluster.nodes
    known = {"r1": Peer(first.address, TOKEN, "t")}
    fetching = Exchange(second.table().store, lambda name, _: known.get(name), 2)
    yield fetching
    fetching.close()
    second.coordination.resume()


def from_nobody(wanted: fx.FetchPart) -> fx.FetchPart:
    return fx.FetchPart(wanted.part, wanted.content_hash, ("nobody",))


def test_what_was_received_ahead_is_published_when_it_is_fetched_and_not_before(
    cluster: InProcessCluster, fetching: Exchange, wanted: fx.FetchPart
) -> None:
    store = cluster.nodes[1].table().store
    assert isinstance(fetching.fetch((from_nobody(wanted),))[0], fx.NotFetched)
    fetching.begin(wanted)
    assert not store.has_part(wanted.part)
    assert fetching.fetch((from_nobody(wanted),)) == (fx.Fetched(wanted.part),)
    assert store.verify(wanted.part).content == wanted.content_hash
    assert store.fetches() == ()


def test_a_part_that_could_not_be_received_ahead_is_fetched_as_ever(fetching: Exchange, wanted: fx.FetchPart) -> None:
    fetching.begin(from_nobody(wanted))
    assert fetching.fetch((wanted,)) == (fx.Fetched(wanted.part),)


def test_what_was_received_ahead_with_other_content_is_not_taken(fetching: Exchange, wanted: fx.FetchPart) -> None:
    fetching.begin(wanted)
    (outcome,) = fetching.fetch((fx.FetchPart(wanted.part, "other", ("nobody",)),))
    assert isinstance(outcome, fx.NotFetched)


def test_what_nobody_fetches_goes_with_the_abandoned_fetches(
    cluster: InProcessCluster, fetching: Exchange, wanted: fx.FetchPart
) -> None:
    fetching.begin(wanted)
    fetching.close()
    store = cluster.nodes[1].table().store
    assert set(store.fetches()) <= {wanted.part}
    assert not store.has_part(wanted.part)


def test_a_part_that_is_being_fetched_is_not_begun_and_one_that_was_begun_not_again() -> None:
    ahead, begun = ReceivedAhead(), list[fx.FetchPart]()
    one = fx.FetchPart("p_0_0_0", "h", ("r1",))

    def begin(fetch: fx.FetchPart) -> None:
        def receive() -> Future[ReceivedPart | None]:
            begun.append(fetch)
            done: Future[ReceivedPart | None] = Future()
            done.set_result(None)
            return done

        ahead.begin(fetch, receive)

    with ahead.taking((one,)) as received:
        assert received == []
        begin(one)
        assert begun == []
    begin(one)
    begin(one)
    assert begun == [one]
    for number in range(1, AHEAD_PARTS_MAX + 1):
        begin(fx.FetchPart(f"p_{number}_{number}_0", "h", ("r1",)))
    begin(one)
    assert begun.count(one) == 2, "the first was forgotten when there were too many"


def test_a_part_is_waited_for_only_while_an_insert_runs(cluster: InProcessCluster) -> None:
    performer = cluster.nodes[0].table().store_performer
    with performer.publishing("all_7_7_0") as published:
        assert published.done()
    with ExitStack() as running:
        running.enter_context(performer.holding(fx.StagingId("s"), {}))
        with performer.publishing("all_7_7_0") as published:
            assert not published.done()
            running.close()
            assert published.done()


def test_a_part_that_was_staged_here_is_waited_for_until_it_is_published(cluster: InProcessCluster) -> None:
    table = cluster.nodes[0].table()
    performer, store, definition = table.store_performer, table.store, table.definition
    staged = stage_table(conform(rows(0), definition), definition, store.staging, prefix=store.staging_prefix("s"))
    store.staged.note("s", staged)
    with performer.publishing("all_7_7_0") as published, performer.publishing("all_8_8_0") as other:
        assert not published.done()
        performer.perform(fx.Publish(fx.StagingId("s"), (("all", "all_7_7_0"),)))
        assert published.done()
        assert other.done(), "nothing is staged that may become it"


# --- entries of one's own -----------------------------------------------------------------------------------------------------


def test_the_entries_that_a_commit_has_appended_are_ones_own() -> None:
    own = Appends()
    create = fx.Create(layout.log_create(TABLE), b"", sequential=True)
    created = (layout.log_entry(TABLE, 7), "/t/replicas/r1/parts/p_7_7_0", layout.log_entry(TABLE, 8))
    perform = own.noting(TABLE, lambda _: fx.Applied(created))
    perform(fx.Commit(create))
    assert own.from_on(fx.LogIndex(7)) == (2, True)
    assert own.from_on(fx.LogIndex(6)) == (0, True)
    assert own.from_on(fx.LogIndex(8)) == (1, True)
    assert own.from_on(fx.LogIndex(9)) == (0, False)


def test_a_commit_that_was_refused_or_appends_nothing_leaves_no_entry() -> None:
    own = Appends()
    create = fx.Create(layout.log_create(TABLE), b"", sequential=True)
    own.noting(TABLE, lambda _: fx.Refused(create, fx.Reason.NO_NODE))(fx.Commit(create))
    own.noting(TABLE, lambda _: None)(fx.Get("/t"))
    with pytest.raises(ZeroDivisionError):
        own.noting(TABLE, lambda _: 1 // 0)(fx.Commit(create))
    assert own.from_on(fx.LogIndex(0)) == (0, False)


# --- who is there -------------------------------------------------------------------------------------------------------------


def test_replicas_are_counted_once_until_something_changes() -> None:
    answers = [Replicas(2, ("r1", "r2")), Replicas(2, ("r1",))]
    live = LiveReplicas(lambda: answers.pop(0))
    known = [live.known, live.ask(), live.known]
    live.forget()
    known += [live.known, live.ask(), live.known]
    both, one = Replicas(2, ("r1", "r2")), Replicas(2, ("r1",))
    assert known == [None, both, both, None, one, one]


def test_a_change_during_the_count_is_not_missed() -> None:
    def count() -> Replicas:
        live.forget()
        return Replicas(2, ("r1", "r2"))

    live = LiveReplicas(count)
    assert live.ask() == Replicas(2, ("r1", "r2"))
    assert live.known is None


def test_inserts_ask_nothing_until_a_replica_leaves(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    replicas = first.table().quorums.replicas
    assert replicas.ask() == replicas.known == Replicas(2, ("r1", "r2"))
    assert first.request("POST", "/v1/tables/t/insert?quorum=2", as_stream(rows(0)))[0] == 200
    assert replicas.known == Replicas(2, ("r1", "r2")), "it has asked nothing"
    second.stop()
    wait_for(lambda: replicas.known is None, "the watch has fired")
    status, answer = first.request("POST", "/v1/tables/t/insert?quorum=2", as_stream(rows(10)))
    assert (status, answer["error"]) == (503, "TooFewReplicas")


def test_a_wish_is_checked_by_what_is_known_and_never_refused_by_it(cluster: InProcessCluster) -> None:
    quorums = cluster.nodes[0].table().quorums
    quorums.replicas.forget()
    assert quorums.checked(Wish(ALL)) is None
    quorums.replicas.ask()
    assert quorums.checked(Wish(ALL, 3.0)) == Wish(2, 3.0, is_checked=True)
    assert quorums.checked(Wish(3)) is None
    quorums.replicas.forget()
    assert quorums.needed(Wish(2, is_checked=True)) == 2
    assert quorums.replicas.known is None, "it has asked nothing"


def test_a_lost_connection_voids_what_was_heard(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    replicas = first.table().quorums.replicas
    replicas.ask()
    first.coordination.suspend()
    wait_for(lambda: replicas.known is None, "nothing is known")
    first.coordination.resume()


# --- the writer ---------------------------------------------------------------------------------------------------------------


def test_the_writer_pulls_its_own_entry_with_its_end_and_answers_before(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "FOLLOW_S", 60.0)
    monkeypatch.setattr(appends, "COMMIT_S_MAX", 60.0)
    table = cluster.nodes[0].table()
    perform, may_pull, pulls = table.performer.perform, threading.Event(), list[fx.Commit]()

    def hold_pulls(effect: fx.Effect) -> object:
        if isinstance(effect, fx.Commit) and any(each.path.endswith("/log_pointer") for each in effect.operations):
            pulls.append(effect)
            assert may_pull.wait(60.0)
        return perform(effect)

    monkeypatch.setattr(table.performer, "perform", hold_pulls)
    status, told = cluster.nodes[0].request("POST", "/v1/tables/t/insert?quorum=2", as_stream(rows(0)))
    assert (status, told["index"], told["settled"]) == (200, 0, 1)
    assert table.progress.pointer == 0, "nothing is pulled yet"
    may_pull.set()
    wait_for(lambda: table.progress.pointer == 2, "both are pulled")
    assert len(pulls) == 1


# --- what an insert with a quorum costs ---------------------------------------------------------------------------------------

INSERTS = 20
READS_MAX, COMMITS_MAX = 15, 7
"""For each insert, on both replicas, however they are scheduled: an insert, two pulls on each, a registration on each."""


def test_the_requests_of_a_quorum_insert_to_coordination(cluster: InProcessCluster) -> None:
    def insert(number: int) -> None:
        node = cluster.nodes[number % 2]
        assert node.request("POST", "/v1/tables/t/insert?quorum=2", as_stream(rows(10 * number)))[0] == 200

    def requests(*kinds: str) -> int:
        return sum(node.coordination.requests[kind] for node in cluster.nodes for kind in kinds)

    for number in range(2):  # who is there is counted once
        insert(number)
    cluster.wait_alike()
    reads, commits = requests("get", "exists"), requests("commit")
    for number in range(2, 2 + INSERTS):
        insert(number)
    cluster.wait_alike()
    assert (requests("commit") - commits) / INSERTS <= COMMITS_MAX
    assert (requests("get", "exists") - reads) / INSERTS <= READS_MAX
