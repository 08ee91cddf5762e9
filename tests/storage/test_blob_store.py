"""What can happen to a member on an object store, and to no other: requests that are at once each, and not together."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pytest

from replitree.errors import StoreError
from replitree.storage.objects import ObjectStore, open_store
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import Channels, in_one_group
from replitree.tablet.core.commit import Draft, Ledger, form, open_ledger, stored
from replitree.tablet.core.election import Candidate, NotElected, Won, stand
from replitree.tablet.group.effects import Collection, Overtaken, Procedure, Put, Stored
from replitree.tablet.group.ids import BlobId, Channel, Generation, Step, TabletId, log_entry
from replitree.tablet.group.member import Contents, Done, Failed, Look, Raise, Request, Scan, Sweep, Swept, Write
from replitree.tablet.group.openings import open_group
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members.asking import performed
from replitree.tablet.members.group import BlobGroups, MemberPool
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.store import BlobStore, blob_of, key_of, make_blob_store
from replitree.tablet.members.store_state import STATE_KEY
from replitree.tablet.runtime.fresh import FreshReads
from tests.storage.blob_providers import GROUP, TABLET, at, blob_id, fence
from tests.storage.blob_store_providers import Faults
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import Fault, S3Server
from tests.tablet.machine import Words
from tests.tablet.runtime.group import QUIET
from tests.waiting import wait_for

ALL = Scan(blob_id(1, 0), blob_id(9, 0))


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch.setattr)


@pytest.fixture
def objects(faults: Faults) -> ObjectStore:
    assert faults is not None
    store = open_store("memory:///", wait=lambda _: None)
    make_blob_store(store, GROUP, 0, "s0")
    return store


@pytest.fixture
def opened(objects: ObjectStore) -> Iterator[Callable[[], BlobStore]]:
    members: list[BlobStore] = []

    def open_one() -> BlobStore:
        members.append(BlobStore(objects))
        return members[-1]

    yield open_one
    for each in members:
        each.close()


@pytest.fixture
def member(opened: Callable[[], BlobStore]) -> BlobStore:
    return opened()


def write(member: BlobMember, step: int, generation: int = 1) -> object:
    """Write a small blob."""
    return member.answer(Write(((blob_id(generation, step), b"x"),)))


def names(member: BlobMember, request: Scan | Look = ALL) -> list[BlobId]:
    """Read everything."""
    reply = member.answer(request)
    assert isinstance(reply, Contents), reply
    assert reply.damaged == ()
    return [blob for blob, _ in reply.blobs]


def sweep(barrier: tuple[int, int], number: int = 1, generation: int = 9) -> Sweep:
    """Make a collection of the log."""
    return Sweep(Collection(TABLET, Channel(0), (Generation(generation), number), at(*barrier)))


def test_objects_of_one_read_are_asked_for_together_and_no_more_than_allowed(
    faults: Faults, objects: ObjectStore
) -> None:
    member = BlobStore(objects, at_once=4)
    for step in range(1, 13):
        write(member, step)
    together, lock, now, most = threading.Barrier(4, timeout=30.0), threading.Lock(), 0, 0

    def before(what: str, key: str) -> None:
        nonlocal now, most
        if what == "get" and key.startswith("blobs/"):
            with lock:
                now += 1
                most = max(most, now)
            together.wait()
            with lock:
                now -= 1

    faults.before = before
    assert names(member) == [blob_id(1, step) for step in range(1, 13)]
    assert most == 4
    member.close()


# --- what lies between two requests -------------------------------------------------------------------------------------


def once_before(faults: Faults, name: str, key: str, then: Callable[[], object]) -> None:
    """Do something just before the next request of a kind to a key."""

    def before(what: str, which: str) -> None:
        if (what, which) == (name, key):
            faults.before = lambda *_: None
            then()

    faults.before = before


def test_blob_that_is_stored_before_a_fence_and_looked_at_after_does_not_count(
    faults: Faults, member: BlobStore, opened: Callable[[], BlobStore]
) -> None:
    successor = opened()
    seen: list[list[BlobId]] = []

    def take_over() -> None:
        seen.append(names(successor, Scan(blob_id(1, 0), blob_id(9, 0), fence(1))))

    once_before(faults, "get", STATE_KEY, take_over)
    assert write(member, 1) == Overtaken(Generation(1))
    assert seen == [[blob_id(1, 1)]]  # who took over has it, so the writer may think what it likes


def test_blob_that_is_stored_after_a_fence_is_refused_and_may_be_found(
    faults: Faults, member: BlobStore, opened: Callable[[], BlobStore]
) -> None:
    successor = opened()
    seen: list[list[BlobId]] = []
    once_before(
        faults,
        "put",
        key_of(blob_id(1, 1)),
        lambda: seen.append(names(successor, Scan(blob_id(1, 0), blob_id(9, 0), fence(1)))),
    )
    assert write(member, 1) == Overtaken(Generation(1))
    assert seen == [[]]
    assert names(successor) == [blob_id(1, 1)]
    assert write(member, 2) == Overtaken(Generation(1))
    assert names(successor) == [blob_id(1, 1)]  # it has learnt that it is fenced, and did not even try


def test_blob_that_comes_back_where_it_was_deleted_stays_gone(
    faults: Faults, member: BlobStore, opened: Callable[[], BlobStore], objects: ObjectStore
) -> None:
    leader = opened()
    once_before(faults, "put", key_of(blob_id(1, 1)), lambda: leader.answer(sweep((1, 5))))
    assert write(member, 1) == Swept(blob_id(1, 1))
    assert objects.get(key_of(blob_id(1, 1))) is not None
    assert names(opened()) == []
    assert leader.answer(sweep((1, 6), 2)) == Done()
    assert objects.get(key_of(blob_id(1, 1))) is None


@pytest.mark.parametrize("request_", [ALL, Scan(blob_id(1, 0), blob_id(9, 0), newest=True), Look((blob_id(1, 1),))])
def test_blob_that_is_collected_while_it_is_read_is_gone_not_damaged(
    faults: Faults, member: BlobStore, opened: Callable[[], BlobStore], request_: Scan | Look
) -> None:
    leader = opened()
    write(member, 1)
    once_before(faults, "get", key_of(blob_id(1, 1)), lambda: leader.answer(sweep((1, 1))))
    assert names(member, request_) == []


def test_newest_is_looked_for_again_when_it_was_collected(
    faults: Faults, member: BlobStore, opened: Callable[[], BlobStore]
) -> None:
    leader = opened()
    write(member, 1)
    write(member, 2)
    keep = Collection(TABLET, Channel(0), (Generation(9), 1), at(1, 2), keep=(blob_id(1, 1),))
    once_before(faults, "get", key_of(blob_id(1, 2)), lambda: leader.answer(Sweep(keep)))
    assert names(member, Scan(blob_id(1, 0), blob_id(9, 0), newest=True)) == [blob_id(1, 1)]


def test_object_that_somebody_deleted_by_hand_is_in_doubt(
    faults: Faults, member: BlobStore, objects: ObjectStore
) -> None:
    write(member, 1)
    key = key_of(blob_id(1, 1))
    once_before(faults, "get", key, lambda: objects.delete([key]))
    assert member.answer(ALL) == Contents((), (blob_id(1, 1),))


def test_two_who_change_the_state_at_once_both_do(
    faults: Faults, member: BlobStore, opened: Callable[[], BlobStore]
) -> None:
    other = opened()
    once_before(faults, "put", STATE_KEY, lambda: other.answer(sweep((1, 1))))
    assert member.answer(Raise(TABLET, fence(3))) == Done()
    assert write(member, 1, generation=1) == Overtaken(Generation(3))
    assert write(member, 5, generation=4) == Done()
    assert names(other) == [blob_id(4, 5)]
    assert member.answer(Write(((blob_id(1, 1), b"x"),), fence(3))) == Swept(blob_id(1, 1))


# --- answers that do not come, and what is not there -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["put", "get", "list", "delete"])
@pytest.mark.parametrize("times", [1, 3])
def test_lost_answers_change_nothing(faults: Faults, member: BlobStore, name: str, times: int) -> None:
    requests: list[Request] = [
        Write(((blob_id(1, 1), b"x"), (blob_id(1, 2), b"y"))),
        Raise(TABLET, fence(1)),
        Write(((blob_id(2, 1), b"z"),)),
        sweep((1, 1)),
    ]
    for request in requests:
        faults.lost[name] = times
        assert member.answer(request) == Done()
    faults.lost[name] = times
    assert names(member) == [blob_id(1, 2), blob_id(2, 1)]


def test_store_that_does_not_answer_leaves_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(monkeypatch.setattr)
    store = open_store("memory:///", patience_s=0.0)
    make_blob_store(store, GROUP, 0, "s0")
    member = BlobStore(store)
    faults.lost |= {"put": 9, "head": 9, "get": 9}
    reply = write(member, 1)
    assert isinstance(reply, Failed)
    assert "may still happen" in reply.reason
    assert isinstance(member.admit(1), Failed)
    faults.lost.clear()
    assert names(member) == [blob_id(1, 1)]  # it was
    member.close()


def test_place_without_its_state_does_not_answer(member: BlobStore, objects: ObjectStore) -> None:
    write(member, 1)
    objects.delete([STATE_KEY])
    replies = (member.answer(ALL), write(member, 2), member.answer(Raise(TABLET, fence(1))), member.standing())
    assert all(isinstance(each, Failed) for each in replies)
    objects.create(STATE_KEY, b"something else")
    assert isinstance(member.answer(ALL), Failed)
    assert isinstance(member.admit(3), Failed)


def test_object_of_another_blob_is_damaged(member: BlobStore, objects: ObjectStore) -> None:
    write(member, 1)
    found = objects.get(key_of(blob_id(1, 1)))
    assert found is not None
    objects.create(key_of(blob_id(1, 2)), found)
    objects.create(key_of(blob_id(1, 3)), found[:-1])
    objects.create("blobs/what/is/this", found)
    assert member.answer(ALL) == Contents(((blob_id(1, 1), b"x"),), (blob_id(1, 2), blob_id(1, 3)))


def test_blob_that_is_too_large_is_refused(member: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.tablet.members.store.BLOB_BYTES_MAX", 10)
    reply = member.answer(Write(((blob_id(1, 1), b"x" * 11),)))
    assert isinstance(reply, Failed)
    assert "write it in several" in reply.reason
    assert names(member) == []


def test_keys_are_ordered_as_ids_are() -> None:
    ids = sorted(
        BlobId(*numbers)  # type: ignore[arg-type]
        for numbers in itertools.product((1, 300), (0, 255), (1, 2**32 - 1), (0, 256), (0, 2**24 - 1))
    )
    keys = [key_of(blob) for blob in ids]
    assert sorted(keys) == keys
    assert [blob_of(key) for key in keys] == ids
    assert blob_of("blobs/0000000000000007/00/00000002/000000ff") is None


# --- what a store must do ---------------------------------------------------------------------------------------------------


def test_place_is_made_once(objects: ObjectStore) -> None:
    with pytest.raises(StoreError, match="name another prefix"):
        make_blob_store(objects, GROUP, 0, "again")


@pytest.mark.parametrize("lie", ["honours_conditions", "honours_matches"])
def test_store_that_ignores_conditions_is_refused(lie: str) -> None:
    with S3Server() as server:
        store = open_store(server.url(), environment=KEYS)
        setattr(server.state, lie, False)
        with pytest.raises(StoreError, match="ignores the condition"):
            make_blob_store(store, GROUP, 0, "s0")
        assert "ignores the condition" in str(BlobStore(store, probes=True).standing())
        assert server.state.objects == {}


def test_blob_costs_one_request_to_store_and_one_to_check() -> None:
    with S3Server() as server:
        store = open_store(server.url(), environment=KEYS)
        make_blob_store(store, GROUP, 0, "s0")
        member = BlobStore(store)
        before = len(server.state.requests)
        assert write(member, 1) == Done()
        assert [each.split()[0] for each in server.state.requests[before:]] == ["PUT", "GET"]
        member.close()


# --- a tablet on one store --------------------------------------------------------------------------------------------------

LOG_ONLY = Channels(TabletId(7), (((Generation(1), GROUP),),))


def group_on(member: BlobStore) -> BlobGroups:
    """Open a group whose one member is on a store."""
    quorum = Quorum(GROUP, 1, 1)
    (obstacle,) = performed([member], open_group(quorum, ["s0"])).obstacles
    return BlobGroups({GROUP: (quorum, [MemberPool(member, obstacle)])}, patience_s=60)


def lead(group: BlobGroups, issuer: str) -> Won | NotElected:
    """Stand for leader."""
    return group.run(stand(Candidate(LOG_ONLY, issuer)))


def commit(group: BlobGroups, ledger: Ledger, bodies: list[bytes]) -> tuple[Ledger, list[object]]:
    """Commit some entries, and say what became of each."""
    outcomes = list[object]()

    def put(blob: BlobId, data: bytes) -> Procedure[object]:
        return (yield Put(GROUP, blob, data))

    for body in bodies:
        ledger, blobs = form(ledger, Draft(body))
        for blob, data in blobs:
            outcomes.append(group.run(put(blob, data)))
            ledger, _ = stored(ledger, blob)
    return ledger, outcomes


def ledger_of(elected: Won | NotElected) -> Ledger:
    """Begin to lead."""
    assert isinstance(elected, Won), elected
    return open_ledger(LOG_ONLY.tablet, elected)


def bodies_of(elected: Won | NotElected) -> list[bytes]:
    """What a leader found."""
    assert isinstance(elected, Won), elected
    return [entry.body for _, entry in elected.recovered.accepted]


@pytest.mark.parametrize("fault", [None, Fault.LOSE_ANSWER, Fault.ERROR_AFTER, Fault.SLOW_DOWN])
def test_leaders_follow_each_other_on_a_bucket(fault: Fault | None) -> None:
    with S3Server() as server:
        store = open_store(server.url(), environment=KEYS, wait=lambda _: None)
        make_blob_store(store, GROUP, 0, "s0")
        members = [BlobStore(store), BlobStore(store)]
        groups = [group_on(member) for member in members]
        bodies = [b"a", b"b"]
        server.state.faults += [(method, fault) for method in ("PUT", "GET") * 4 if fault is not None]
        first, outcomes = commit(groups[0], ledger_of(lead(groups[0], "c0")), bodies)
        assert outcomes == [Stored(), Stored()]
        second = lead(groups[1], "c1")
        assert bodies_of(second) == bodies
        assert commit(groups[0], first, [b"c"])[1] == [Overtaken(Generation(1))]
        assert commit(groups[1], ledger_of(second), [b"d"])[1] == [Stored()]
        for group in groups:
            group.close()
        for member in members:
            member.close()


def test_candidate_that_was_overtaken_before_its_zero_entry_does_not_lead(
    faults: Faults, opened: Callable[[], BlobStore]
) -> None:
    slow, fast, later = (group_on(opened()) for _ in range(3))
    zero = log_entry(LOG_ONLY.tablet, Generation(1), Step(0))
    elected: list[Won | NotElected] = []
    once_before(faults, "put", key_of(zero), lambda: elected.append(lead(fast, "c1")))
    overtaken = lead(slow, "c0")
    assert isinstance(overtaken, NotElected)
    assert overtaken.reason == Overtaken(Generation(1))
    assert commit(fast, ledger_of(elected[0]), [b"a"])[1] == [Stored()]
    assert bodies_of(lead(later, "c2")) == [b"a"]
    for each in (slow, fast, later):
        each.close()


# --- reads that are shared --------------------------------------------------------------------------------------------------


def test_read_that_began_before_is_not_shared() -> None:
    begun, go_on = threading.Event(), threading.Event()
    values = iter(range(1, 9))

    def read() -> int:
        value = next(values)
        if value == 1:
            begun.set()
            go_on.wait(60)
        return value

    reads, found = FreshReads(read), list[int]()
    first = threading.Thread(target=lambda: found.append(reads.read()))
    first.start()
    begun.wait(60)
    later = threading.Thread(target=lambda: found.append(reads.read()))
    later.start()
    go_on.set()
    first.join()
    later.join()
    assert sorted(found) == [1, 2]


def test_read_that_fails_fails_for_its_caller_only() -> None:
    answers: list[Any] = [StoreError("no"), 5]

    def read() -> int:
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        assert isinstance(answer, int)
        return answer

    reads = FreshReads(read)
    with pytest.raises(StoreError):
        reads.read()
    assert reads.read() == 5


def test_folder_of_a_store_is_used_by_two_processes_alike(tmp_path: Path) -> None:
    one, other = (open_store(f"file://{tmp_path}/objects") for _ in range(2))
    make_blob_store(one, GROUP, 0, "s0")
    members = [BlobStore(one), BlobStore(other)]
    assert write(members[0], 1) == Done()
    assert members[1].answer(Raise(TABLET, fence(1))) == Done()
    assert write(members[0], 2) == Overtaken(Generation(1))
    assert [each["path"] for chunk in obstore.list(one._raw) for each in chunk if "#" in each["path"]] == []  # noqa: SLF001
    for each in members:
        each.close()


class Requests:
    """Counts what is asked of a store, by kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: list[str] = []
        self.keys: list[str] = []
        for name in ("put", "get", "list", "delete"):
            monkeypatch.setattr(obstore, name, partial(self._noted, name, getattr(obstore, name)))

    def _noted(self, name: str, whole: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.kinds.append(name)
        self.keys.append(str(arguments[1]) if len(arguments) > 1 else "")
        return whole(*arguments, **options)


def test_recovery_from_a_store_reads_each_entry_once_and_lists_instead_of_looking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects = open_store("memory:///")
    make_blob_store(objects, GROUP, 0, "s0")
    member = BlobStore(objects)
    groups = BlobGroups({GROUP: (Quorum(GROUP, 1, 1), [MemberPool(member)])})
    channels = in_one_group(TABLET, GROUP)
    with open_tablet(groups, Words(), channels, settings=QUIET) as tablet:
        for _ in range(40):
            tablet.execute(b"a")
    requests = Requests(monkeypatch)
    elected = groups.run(stand(Candidate(channels, "next")))
    assert isinstance(elected, Won)
    assert len(elected.recovered.accepted) == 40
    counted = Counter(requests.kinds)
    assert counted == {
        "get": 42 + 5,
        "list": 1,
        "put": 2,
    }  # the latest twice; `state` five times, for it is not known as alone
    groups.close()
    member.close()


def test_leader_on_a_store_does_not_read_again_what_it_has_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = open_store("memory:///")
    make_blob_store(objects, GROUP, 0, "s0")
    member = BlobStore(objects)
    groups = BlobGroups({GROUP: (Quorum(GROUP, 1, 1), [MemberPool(member)])})
    channels = in_one_group(TABLET, GROUP)
    with open_tablet(groups, Words(), channels, settings=QUIET) as tablet:
        for _ in range(40):
            tablet.execute(b"a")
    requests = Requests(monkeypatch)
    with open_tablet(groups, Words(), channels, settings=QUIET) as tablet:
        wait_for(lambda: tablet.status().is_mended)
    asked = zip(requests.kinds, requests.keys, strict=True)
    reads = Counter(blob for kind, key in asked if kind == "get" and (blob := blob_of(key)) is not None)
    assert reads == {log_entry(TABLET, Generation(1), Step(step)): 1 + (step == 40) for step in range(41)}
    groups.close()
    member.close()
