"""What every provider of coordination must do: asked of the tree in memory and of a real ZooKeeper 3.9.5 alike.

Scenarios; `test_differential` asks the same of both with random commits.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replitree.coordination.port import READS_MAX, Connected, Coordination, SessionLost, Suspended, Watched, make_root
from replitree.errors import CoordinationUnavailable
from replitree.protocol.core.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Children,
    ChildrenMany,
    Commit,
    Committed,
    Create,
    Delete,
    Exists,
    Get,
    GetMany,
    Many,
    Node,
    Operation,
    Reason,
    Refused,
    Set,
    Sync,
    Unknown,
    Version,
)
from tests.coordination.conftest import Provider
from tests.coordination.waiting import PATIENCE_S, Recorder


@pytest.fixture
def root(provider: Provider) -> str:
    return provider.root


@pytest.fixture
def zk(provider: Provider) -> Coordination:
    # A busy machine may be silent for longer than a short session lives, and a test would hear of it.
    return provider.connect(PATIENCE_S)


@pytest.fixture
def other(provider: Provider) -> Coordination:
    return provider.connect(PATIENCE_S)


@pytest.fixture
def commit(zk: Coordination) -> Callable[..., Committed]:
    return lambda *operations: zk.perform(Commit(*operations))


Commits = Callable[..., Committed]

# --- nodes and versions -------------------------------------------------------------------------------------------------


def test_a_node_is_born_at_version_0_and_every_set_adds_one(zk: Coordination, root: str, commit: Commits) -> None:
    assert commit(Create(f"{root}/a", b"one")) == Applied((f"{root}/a",))
    assert zk.perform(Get(f"{root}/a")) == Node(b"one", Version(0))
    assert commit(Set(f"{root}/a", b"two", 0)) == Applied()
    assert commit(Set(f"{root}/a", b"two", ANY_VERSION)) == Applied()
    assert zk.perform(Get(f"{root}/a")) == Node(b"two", Version(2))


def test_a_node_that_is_created_again_starts_at_version_0(zk: Coordination, root: str, commit: Commits) -> None:
    commit(Create(f"{root}/a"), Set(f"{root}/a", b"x", 0))
    assert commit(Delete(f"{root}/a", 1), Create(f"{root}/a", b"again")) == Applied((f"{root}/a",))
    assert zk.perform(Get(f"{root}/a")) == Node(b"again", Version(0))


def test_nodes_know_when_they_were_written_last_by_one_clock(zk: Coordination, root: str, commit: Commits) -> None:
    def times() -> list[int]:
        nodes = zk.perform(GetMany((f"{root}/a", f"{root}/b"))).nodes
        return [node.changed_ms for node in nodes if node is not None]

    commit(Create(f"{root}/a"))
    commit(Create(f"{root}/b"))
    first = times()
    assert 0 < first[0] <= first[1]
    tries = 0
    while times()[0] <= first[1]:  # the clock counts milliseconds
        commit(Set(f"{root}/a", b"x", ANY_VERSION))
        tries += 1
        assert tries < 10_000
    assert times()[1] == first[1]
    alone = zk.perform(Get(f"{root}/a"))
    assert alone is not None
    assert alone.changed_ms == times()[0]


def test_reads_of_what_is_not_there(zk: Coordination, root: str) -> None:
    assert zk.perform(Get(f"{root}/no")) is None
    assert zk.perform(Exists(f"{root}/no")) is False
    assert zk.perform(Children(f"{root}/no")) is None
    assert zk.perform(GetMany((f"{root}/no", f"{root}/no/deeper"))) == Many((None, None))
    assert zk.perform(ChildrenMany((f"{root}/no", f"{root}/no/deeper"))) == (None, None)


def test_children_come_in_ascending_order(zk: Coordination, root: str, commit: Commits) -> None:
    assert zk.perform(Children(root)) == ()
    commit(*(Create(f"{root}/{name}") for name in ("b", "a-10", "a-9", "C")))
    assert zk.perform(Children(root)) == ("C", "a-10", "a-9", "b")


def test_children_of_many_nodes_are_those_of_each(zk: Coordination, root: str, commit: Commits) -> None:
    commit(*(Create(f"{root}/{name}") for name in ("a", "b", "b/größe", "b/10", "b/9")))
    paths = (f"{root}/b", f"{root}/no", f"{root}/a", root)
    assert zk.perform(ChildrenMany(paths)) == (("10", "9", "größe"), None, (), ("a", "b"))
    assert zk.perform(ChildrenMany(())) == ()
    assert zk.perform(ChildrenMany((root,) * (READS_MAX + 1))) == (("a", "b"),) * (READS_MAX + 1)
    assert zk.requests["children"] == 1 + 2


def test_many_nodes_are_read_in_order_with_a_word_on_the_watched_one(
    zk: Coordination, root: str, commit: Commits
) -> None:
    commit(Create(f"{root}/a", b"A"), Create(f"{root}/b", b"B"))
    expected = (Node(b"B", Version(0)), None, Node(b"A", Version(0)))
    paths = (f"{root}/b", f"{root}/no", f"{root}/a")
    assert zk.perform(GetMany(paths)) == Many(expected, watched=False)
    assert zk.perform(GetMany(paths, watch=f"{root}/a")) == Many(expected, watched=True)
    assert zk.perform(GetMany(paths, watch=f"{root}/no")) == Many(expected, watched=False)
    assert zk.perform(GetMany((), watch=f"{root}/a")) == Many((), watched=True)
    assert zk.perform(GetMany(())) == Many(())


def test_a_read_after_sync_sees_what_another_session_committed(
    zk: Coordination, other: Coordination, root: str
) -> None:
    assert other.perform(Commit(Create(f"{root}/a", b"x"))) == Applied((f"{root}/a",))
    assert zk.perform(Sync(root)) is None
    assert zk.perform(Get(f"{root}/a")) == Node(b"x", Version(0))


def test_sync_of_a_node_that_is_not_there_is_no_error(zk: Coordination, root: str) -> None:
    assert zk.perform(Sync(f"{root}/no")) is None


def test_values_are_bytes_as_they_are(zk: Coordination, root: str, commit: Commits) -> None:
    value = bytes(range(256)) * 100
    commit(Create(f"{root}/ü→", value), Create(f"{root}/empty"))
    assert zk.perform(GetMany((f"{root}/ü→", f"{root}/empty"))) == Many(
        (Node(value, Version(0)), Node(b"", Version(0)))
    )


# --- refusals: the first operation that does not hold ------------------------------------------------------------------

REFUSALS: dict[str, tuple[Callable[[str], Operation], Reason]] = {
    "check of no node": (lambda r: Check(f"{r}/no", 0), Reason.NO_NODE),
    "check of no node at any version": (lambda r: Check(f"{r}/no", ANY_VERSION), Reason.NO_NODE),
    "check of another version": (lambda r: Check(f"{r}/a", 1), Reason.BAD_VERSION),
    "set of no node": (lambda r: Set(f"{r}/no", b"", ANY_VERSION), Reason.NO_NODE),
    "set of another version": (lambda r: Set(f"{r}/a", b"", 7), Reason.BAD_VERSION),
    "delete of no node": (lambda r: Delete(f"{r}/no", ANY_VERSION), Reason.NO_NODE),
    "delete of another version": (lambda r: Delete(f"{r}/a", 7), Reason.BAD_VERSION),
    "delete of a node with children": (lambda r: Delete(f"{r}/full", ANY_VERSION), Reason.NOT_EMPTY),
    "delete of another version of a node with children": (lambda r: Delete(f"{r}/full", 3), Reason.BAD_VERSION),
    "create of a node that is there": (lambda r: Create(f"{r}/a"), Reason.NODE_EXISTS),
    "create without a parent": (lambda r: Create(f"{r}/no/a"), Reason.NO_NODE),
    "create of a numbered node without a parent": (lambda r: Create(f"{r}/no/n-", sequential=True), Reason.NO_NODE),
    "create below an ephemeral": (lambda r: Create(f"{r}/mine/a"), Reason.NO_CHILDREN_FOR_EPHEMERALS),
    "create of a numbered node below an ephemeral": (
        lambda r: Create(f"{r}/mine/n-", sequential=True),
        Reason.NO_CHILDREN_FOR_EPHEMERALS,
    ),
}  # fmt: skip


@pytest.fixture
def furnished(root: str, commit: Commits) -> str:
    nodes = Create(f"{root}/a", b"A"), Create(f"{root}/full"), Create(f"{root}/full/child")
    assert isinstance(commit(*nodes, Create(f"{root}/mine", ephemeral=True)), Applied)
    return root


@pytest.mark.parametrize("case", REFUSALS)
def test_an_operation_that_does_not_hold_is_refused_with_its_reason(case: str, furnished: str, commit: Commits) -> None:
    make, reason = REFUSALS[case]
    assert commit(make(furnished)) == Refused(make(furnished), reason)


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_commit_changes_nothing_and_names_the_first_that_did_not_hold(
    case: str, zk: Coordination, furnished: str, commit: Commits
) -> None:
    make, reason = REFUSALS[case]
    later = Create(f"{furnished}/a")  # would not hold either
    outcome = commit(
        Check(f"{furnished}/a", 0),
        Create(f"{furnished}/new"),
        Set(f"{furnished}/a", b"changed", 0),
        Delete(f"{furnished}/full/child", 0),
        Create(f"{furnished}/full/child"),
        Set(f"{furnished}/a", b"A", ANY_VERSION),
        Delete(f"{furnished}/new", ANY_VERSION),
        make(furnished) if case != "check of another version" else Check(f"{furnished}/a", 9),
        later,
    )
    assert isinstance(outcome, Refused)
    assert outcome.reason == reason
    assert outcome.operation != later or case == "create of a node that is there"
    assert zk.perform(Children(furnished)) == ("a", "full", "mine")
    assert zk.perform(Get(f"{furnished}/a")) == Node(b"A", Version(0))


def test_an_operation_sees_what_the_ones_before_it_did(zk: Coordination, root: str, commit: Commits) -> None:
    a, b = f"{root}/a", f"{root}/a/b"
    operations = Create(a), Create(b), Set(b, b"x", 0), Check(b, 1), Delete(b, 1), Delete(a, 0), Create(a, b"last")
    assert commit(*operations) == Applied((a, b, a))
    assert zk.perform(Get(a)) == Node(b"last", Version(0))
    assert commit(Delete(a, 0), Check(a, ANY_VERSION)) == Refused(Check(a, ANY_VERSION), Reason.NO_NODE)
    assert commit(Set(a, b"", 0), Check(a, 0)) == Refused(Check(a, 0), Reason.BAD_VERSION)


def test_a_commit_of_checks_alone_is_applied(root: str, commit: Commits) -> None:
    assert commit(Check(root, 0), Check(root, ANY_VERSION)) == Applied()


# --- numbers --------------------------------------------------------------------------------------------------------------


def numbered(root: str, commit: Commits) -> int:
    outcome = commit(Create(f"{root}/n-", sequential=True))
    assert isinstance(outcome, Applied)
    return int(outcome.created[0].removeprefix(f"{root}/n-"))


def test_numbers_are_dense_over_deletions_and_refusals(root: str, commit: Commits) -> None:
    assert [numbered(root, commit) for _ in range(3)] == [0, 1, 2]
    commit(Delete(f"{root}/n-0000000001", 0), Delete(f"{root}/n-0000000002", 0))
    assert numbered(root, commit) == 3
    refused = commit(*(Create(f"{root}/n-", sequential=True) for _ in range(5)), Check(root, 99))
    assert refused == Refused(Check(root, 99), Reason.BAD_VERSION)
    assert numbered(root, commit) == 4


def test_every_created_child_counts_whatever_its_kind(root: str, commit: Commits) -> None:
    commit(Create(f"{root}/plain"), Create(f"{root}/mine", ephemeral=True), Create(f"{root}/x-", sequential=True))
    assert numbered(root, commit) == 3


def test_numbers_within_one_commit_follow_each_other(root: str, commit: Commits) -> None:
    outcome = commit(
        Create(f"{root}/n-", sequential=True),
        Create(f"{root}/m-", sequential=True, ephemeral=True),
        Delete(f"{root}/n-0000000000", 0),
        Create(f"{root}/n-", sequential=True),
    )
    assert outcome == Applied((f"{root}/n-0000000000", f"{root}/m-0000000001", f"{root}/n-0000000002"))


def test_numbers_begin_anew_under_a_parent_that_was_created_again(root: str, commit: Commits) -> None:
    parent = f"{root}/log"
    commit(Create(parent))
    assert [numbered(parent, commit), numbered(parent, commit)] == [0, 1]
    commit(Delete(f"{parent}/n-0000000000", 0), Delete(f"{parent}/n-0000000001", 0), Delete(parent, 0), Create(parent))
    assert numbered(parent, commit) == 0


def test_a_number_whose_name_is_taken_is_refused_and_not_used_up(root: str, commit: Commits) -> None:
    commit(Create(f"{root}/n-0000000001"))
    create = Create(f"{root}/n-", sequential=True)
    assert commit(create) == Refused(create, Reason.NODE_EXISTS)
    commit(Delete(f"{root}/n-0000000001", 0))
    assert numbered(root, commit) == 1


@pytest.mark.parametrize("make", [Create, lambda path: Create(path, sequential=True), lambda path: Delete(path, -1)])
def test_a_path_that_ends_in_a_slash_is_a_bug(make: Callable[[str], Operation], root: str, commit: Commits) -> None:
    with pytest.raises(AssertionError, match="name"):
        commit(make(f"{root}/"))


# --- sessions and ephemeral nodes -----------------------------------------------------------------------------------------


def test_ephemerals_go_with_their_session_and_numbers_stay(
    provider: Provider, zk: Coordination, other: Coordination, root: str
) -> None:
    zk.perform(Commit(Create(f"{root}/mine", ephemeral=True), Create(f"{root}/n-", ephemeral=True, sequential=True)))
    other.perform(Commit(Create(f"{root}/theirs", ephemeral=True), Create(f"{root}/kept")))
    assert other.perform(Exists(f"{root}/mine"))
    zk.close()
    assert other.perform(Children(root)) == ("kept", "theirs")
    assert other.perform(Commit(Create(f"{root}/n-", sequential=True))) == Applied((f"{root}/n-0000000004",))


def test_an_ephemeral_of_another_session_can_be_replaced(zk: Coordination, other: Coordination, root: str) -> None:
    zk.perform(Commit(Create(f"{root}/is_active", b"old", ephemeral=True)))
    taken = Commit(Delete(f"{root}/is_active", 0), Create(f"{root}/is_active", b"new", ephemeral=True))
    assert isinstance(other.perform(taken), Applied)
    zk.close()  # it is not its own any more
    assert other.perform(Get(f"{root}/is_active")) == Node(b"new", Version(0))


def test_an_expired_session_answers_nothing_until_it_reconnects(provider: Provider, root: str) -> None:
    zk, heard = provider.connect(), Recorder()
    zk.perform(Commit(Create(f"{root}/mine", ephemeral=True), Create(f"{root}/kept")))
    old = zk.session_id
    zk.add_listener(heard)
    provider.expire(zk)
    heard.wait_for(*([Suspended()] if Suspended() in heard.events else []), SessionLost())
    assert isinstance(zk.perform(Commit(Create(f"{root}/late"))), Unknown)
    with pytest.raises(CoordinationUnavailable, match="reconnect"):
        zk.perform(Get(root))
    zk.reconnect()
    heard.wait_for(*heard.events[: heard.events.index(SessionLost()) + 1], Connected())
    assert zk.session_id != old
    assert zk.perform(Children(root)) == ("kept",)
    assert isinstance(zk.perform(Commit(Create(f"{root}/mine", ephemeral=True))), Applied)


def test_reconnecting_ends_a_living_session(zk: Coordination, other: Coordination, root: str) -> None:
    zk.perform(Commit(Create(f"{root}/mine", ephemeral=True)))
    heard = Recorder()
    other.add_listener(heard)
    assert other.perform(Exists(f"{root}/mine", watch=True))
    zk.reconnect()
    heard.wait_for(Watched(f"{root}/mine"))
    assert zk.perform(Exists(f"{root}/mine")) is False


def test_a_closed_coordination_answers_nothing(zk: Coordination, root: str) -> None:
    zk.close()
    zk.close()
    assert isinstance(zk.perform(Commit(Create(f"{root}/late"))), Unknown)
    with pytest.raises(CoordinationUnavailable):
        zk.perform(Exists(root))


def test_a_short_cut_of_the_connection_keeps_session_and_ephemerals(
    provider: Provider, zk: Coordination, other: Coordination, root: str
) -> None:
    heard = Recorder()
    zk.add_listener(heard)
    zk.perform(Commit(Create(f"{root}/mine", ephemeral=True)))
    assert zk.perform(Exists(f"{root}/watched", watch=True)) is False
    before = zk.session_id
    provider.suspend(zk)
    heard.wait_for(Suspended())
    provider.resume(zk)
    heard.wait_for(Suspended(), Connected())
    assert zk.session_id == before
    assert zk.perform(Exists(f"{root}/mine"))
    other.perform(Commit(Create(f"{root}/watched")))  # the watch was void
    zk.perform(Sync(root))
    heard.wait_for(Suspended(), Connected())


# --- watches ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def heard(zk: Coordination) -> Recorder:
    recorder = Recorder()
    zk.add_listener(recorder)
    return recorder


def test_a_node_watch_fires_once_on_creation(zk: Coordination, other: Coordination, root: str, heard: Recorder) -> None:
    assert zk.perform(Exists(f"{root}/a", watch=True)) is False
    other.perform(Commit(Create(f"{root}/a")))
    heard.wait_for(Watched(f"{root}/a"))
    other.perform(Commit(Set(f"{root}/a", b"", 0)))
    zk.perform(Exists(root))
    heard.wait_for(Watched(f"{root}/a"))


def test_a_node_watch_fires_on_set_and_on_deletion(
    zk: Coordination, other: Coordination, root: str, heard: Recorder
) -> None:
    other.perform(Commit(Create(f"{root}/a")))
    assert zk.perform(Exists(f"{root}/a", watch=True)) is True
    other.perform(Commit(Set(f"{root}/a", b"", 0)))
    heard.wait_for(Watched(f"{root}/a"))
    assert zk.perform(GetMany((), watch=f"{root}/a")) == Many((), watched=True)
    other.perform(Commit(Delete(f"{root}/a", 1)))
    heard.wait_for(Watched(f"{root}/a"), Watched(f"{root}/a"))


def test_a_children_watch_fires_on_creation_and_deletion_of_a_child_only(
    zk: Coordination, other: Coordination, root: str, heard: Recorder
) -> None:
    other.perform(Commit(Create(f"{root}/a"), Create(f"{root}/a/b")))
    assert zk.perform(Children(f"{root}/a", watch=True)) == ("b",)
    other.perform(Commit(Set(f"{root}/a", b"", 0), Set(f"{root}/a/b", b"", 0), Create(f"{root}/a/b/deeper")))
    zk.perform(Exists(root))
    heard.wait_for()
    other.perform(Commit(Create(f"{root}/a/c")))
    heard.wait_for(Watched(f"{root}/a"))
    zk.perform(Children(f"{root}/a", watch=True))
    other.perform(Commit(Delete(f"{root}/a/c", 0)))
    heard.wait_for(*[Watched(f"{root}/a")] * 2)


def test_a_deleted_node_wakes_a_session_once_whatever_it_watched(
    zk: Coordination, other: Coordination, root: str, heard: Recorder
) -> None:
    other.perform(Commit(Create(f"{root}/a")))
    zk.perform(Exists(f"{root}/a", watch=True))
    zk.perform(Children(f"{root}/a", watch=True))
    other.perform(Commit(Delete(f"{root}/a", 0)))
    heard.wait_for(Watched(f"{root}/a"))
    other.perform(Commit(Create(f"{root}/a"), Create(f"{root}/a/b")))
    zk.perform(Exists(root))
    heard.wait_for(Watched(f"{root}/a"))


def test_a_commit_that_fires_both_watches_of_a_node_one_after_the_other_wakes_twice(
    zk: Coordination, other: Coordination, root: str, heard: Recorder
) -> None:
    zk.perform(Exists(root, watch=True))
    zk.perform(Children(root, watch=True))
    other.perform(Commit(Set(root, b"", 0), Create(f"{root}/a")))
    heard.wait_for(Watched(root), Watched(root))


def test_there_is_no_children_watch_on_a_node_that_is_not_there(
    zk: Coordination, other: Coordination, root: str, heard: Recorder
) -> None:
    assert zk.perform(Children(f"{root}/a", watch=True)) is None
    other.perform(Commit(Create(f"{root}/a"), Create(f"{root}/a/b")))
    zk.perform(Exists(root))
    heard.wait_for()


def test_a_refused_commit_fires_no_watch(zk: Coordination, other: Coordination, root: str, heard: Recorder) -> None:
    zk.perform(Exists(f"{root}/a", watch=True))
    other.perform(Commit(Create(f"{root}/a"), Check(root, 99)))
    zk.perform(Exists(root))
    heard.wait_for()


def test_the_end_of_a_session_fires_watches_on_its_ephemerals(
    zk: Coordination, other: Coordination, root: str, heard: Recorder
) -> None:
    other.perform(Commit(Create(f"{root}/theirs", ephemeral=True)))
    zk.perform(Exists(f"{root}/theirs", watch=True))
    zk.perform(Children(root, watch=True))
    other.close()
    heard.wait_watched([f"{root}/theirs", root])


def test_own_commits_fire_own_watches_and_listeners_run_on_one_thread(
    zk: Coordination, root: str, heard: Recorder
) -> None:
    second = Recorder()
    zk.add_listener(second)
    for name in "abc":
        zk.perform(Exists(f"{root}/{name}", watch=True))
    zk.perform(Commit(Create(f"{root}/a")))
    zk.perform(Commit(Create(f"{root}/b")))
    zk.perform(Commit(Create(f"{root}/c")))
    expected = [Watched(f"{root}/{name}") for name in "abc"]
    heard.wait_for(*expected)
    second.wait_for(*expected)
    assert len(heard.threads | second.threads) == 1


def test_a_listener_that_fails_does_not_stop_the_others(zk: Coordination, root: str) -> None:
    def fail(event: object) -> None:
        raise RuntimeError(f"no good: {event}")

    heard = Recorder()
    zk.add_listener(fail)
    zk.add_listener(heard)
    zk.perform(Exists(f"{root}/a", watch=True))
    zk.perform(Commit(Create(f"{root}/a")))
    heard.wait_for(Watched(f"{root}/a"))


# --- the rest -----------------------------------------------------------------------------------------------------------------


def test_requests_are_counted_exactly(zk: Coordination, root: str) -> None:
    before = dict(zk.requests)
    zk.perform(Commit(Create(f"{root}/a"), Create(f"{root}/b"), Check(root, 0)))
    zk.perform(Commit(Check(root, 99)))
    zk.perform(Get(f"{root}/a"))
    zk.perform(GetMany((f"{root}/a", f"{root}/b", f"{root}/no"), watch=f"{root}/c"))
    zk.perform(GetMany((f"{root}/a", f"{root}/b")))
    zk.perform(Exists(root))
    zk.perform(Children(root))
    zk.perform(Sync(root))
    made = {kind: count - before[kind] for kind, count in zk.requests.items()}
    assert made == {"get": 3, "exists": 2, "children": 1, "sync": 1, "commit": 2}


def test_make_root_creates_what_is_missing(zk: Coordination, root: str) -> None:
    make_root(zk, f"{root}/x/y/z")
    make_root(zk, f"{root}/x/y/z")
    assert zk.perform(Children(f"{root}/x/y")) == ("z",)
