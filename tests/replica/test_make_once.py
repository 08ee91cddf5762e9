"""Merges and mutations on an object store: one replica makes a result, the others own it, and nothing is left over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from replitree.protocol.core.effects import FetchPart, NotFetched
from replitree.protocol.core.parts import parse_part
from replitree.protocol.execute import make_once
from replitree.protocol.state.work_mark import Taken
from replitree.replica.perform import progress
from replitree.storage.objects import StoreInDoubt
from replitree.storage.parts.manifest import FileEntry, PartManifest
from tests.replica.inprocess import Node, rows, wait_for
from tests.replica.test_prepared import make, plan_of, send
from tests.replica.test_sharing import SharedCluster, local_files
from tests.shared.stores import FAULTY, FOLDER, on


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


class Gates:
    """Notes what each replica puts into the store, and lets it put only when its gate is open."""

    def __init__(self, cluster: SharedCluster, patch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self.put: list[tuple[str, PartManifest]] = []
        self.brought: list[str] = []
        self.gates = {node.name: threading.Event() for node in cluster.nodes}
        self.failing = 0
        self.open()
        for node in cluster.nodes:
            self._watch(node, patch)

    def _watch(self, node: Node, patch: pytest.MonkeyPatch) -> None:
        objects = node.table().store.shared.objects
        assert objects is not None
        put, bring = objects.put, objects.bring

        def gated(share: str, folder: Path, manifest: PartManifest) -> None:
            with self._lock:
                self.put.append((node.name, manifest))
                fails = self.failing > 0
                self.failing -= fails
            assert self.gates[node.name].wait(60.0)
            put(share, folder, manifest)
            if fails:
                raise StoreInDoubt("the store gave no answer")

        def noted(share: str, file: FileEntry, target: Path) -> None:
            self.brought.append(target.parent.name)
            bring(share, file, target)

        patch.setattr(node.table().merges, "choose", tuple)
        patch.setattr(objects, "put", gated)
        patch.setattr(objects, "bring", noted)

    def open(self, *names: str) -> None:
        for name in names or self.gates:
            self.gates[name].set()

    def close(self) -> None:
        for gate in self.gates.values():
            gate.clear()

    def makers(self) -> list[str]:
        """Who has put something since `begin`."""
        return [name for name, _ in self.put]

    def begin(self) -> None:
        """Forget what was put and brought so far."""
        self.put.clear()
        self.brought.clear()


@pytest.fixture
def gates(shared: SharedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gates]:
    found = Gates(shared, monkeypatch)
    yield found
    found.open()


def other_than(shared: SharedCluster, name: str) -> Node:
    return next(node for node in shared.nodes if node.name != name)


def fill(shared: SharedCluster, parts: int = 3) -> list[int]:
    """Insert parts, which nobody merges by himself; return the keys."""
    for number in range(parts):
        assert shared.nodes[0].insert(rows(10 * number))[0] == 200
    shared.wait_alike()
    return list(range(10 * parts))


def merge_all(node: Node) -> threading.Thread:
    """Ask for a merge of everything, and do not wait for it."""
    asked = threading.Thread(target=lambda: node.post("optimize", {"final": True}, wait_s=20))
    asked.start()
    return asked


def reasons(node: Node) -> str:
    """Why entries of a replica's queue wait."""
    return " ".join(str(row["reason"]) for row in node.table().status()["postponed"])  # type: ignore[attr-defined]


def test_one_replica_makes_a_merge_and_the_other_owns_it(shared: SharedCluster, gates: Gates) -> None:
    keys = fill(shared)
    gates.begin()
    shared.nodes[1].post("optimize", {"final": True}, wait_s=20)
    shared.wait_equal(keys)
    shared.wait_settled()
    assert len(gates.put) == 1
    (part,) = shared.nodes[0].contents()
    assert list(shared.owners().values()) == [{f"r1 {part}", f"r2 {part}"}]


def test_who_waits_says_for_whom_and_is_told_when_it_is_over(
    shared: SharedCluster, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the watch it would look again after ten minutes."""
    monkeypatch.setattr(progress, "POSTPONE_S_MAX", 600.0)
    keys = fill(shared)
    gates.begin()
    gates.close()
    asked = merge_all(shared.nodes[0])
    wait_for(lambda: len(gates.put) == 1, "one has made it")
    (maker,) = gates.makers()
    other = other_than(shared, maker)
    wait_for(lambda: f"{maker} makes " in reasons(other), "the other one says who makes it")
    gates.open()
    asked.join(30.0)
    shared.wait_equal(keys)
    wait_for(lambda: len(other.contents()) == 1, "the other one has it")
    assert len(gates.put) == 1


def test_who_makes_nothing_itself_is_told_too(
    shared: SharedCluster, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POSTPONE_S_MAX", 600.0)
    keys = fill(shared)
    first, second = shared.nodes
    second.post("merges/pause")
    gates.begin()
    gates.close()
    asked = merge_all(first)
    wait_for(lambda: "r1 makes " in reasons(second), "it waits for who makes it")
    gates.open()
    asked.join(30.0)
    wait_for(lambda: len(second.contents()) == 1, "it has it, too")
    shared.wait_equal(keys)
    assert gates.makers() == ["r1"]


@pytest.mark.slow
def test_who_is_paused_for_longer_than_its_session_comes_too_late_and_leaves_nothing(
    shared: SharedCluster, gates: Gates
) -> None:
    keys = fill(shared)
    gates.begin()
    gates.close()
    asked = merge_all(shared.nodes[0])
    wait_for(lambda: len(gates.put) == 1, "one has made it")
    (slow,) = gates.makers()
    slow_node = next(node for node in shared.nodes if node.name == slow)
    other = other_than(shared, slow)
    shared.shared.expire(slow_node.coordination.session_id)
    gates.open(other.name)
    wait_for(lambda: len(other.contents()) == 1, "the other one has made it")
    assert gates.makers() == [slow, other.name]
    gates.open(slow)
    asked.join(30.0)
    wait_for(lambda: slow_node.contents() == other.contents(), "the slow one has it, too")
    shared.wait_settled()
    (part,) = other.contents()
    assert shared.owners() == {gates.put[1][1].share_id: {f"r1 {part}", f"r2 {part}"}}
    shared.wait_equal(keys)


@pytest.mark.slow
def test_who_can_not_put_its_result_lets_another_one_make_it(shared: SharedCluster, gates: Gates) -> None:
    keys = fill(shared)
    gates.begin()
    gates.failing = 1
    shared.nodes[0].post("optimize", {"final": True}, wait_s=20)
    shared.wait_equal(keys)
    shared.wait_settled()
    assert len(gates.put) == 2
    assert len(shared.shares()) == 1


@pytest.mark.slow
def test_who_is_not_sent_what_others_have_made_makes_it_after_a_while(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = shared.add("r3", fetch_wait_s=0.2)
    wait_for(lambda: shared.is_active(third), "r3 active")
    exchange = third.table().exchange
    fetch = exchange.fetch

    def partly(fetches: tuple[FetchPart, ...]) -> Any:
        if any(parse_part(each.part).level for each in fetches):
            return tuple(NotFetched(each.part, "no way there") for each in fetches)
        return fetch(fetches)

    monkeypatch.setattr(exchange, "fetch", partly)
    third.post("merges/pause")
    keys = fill(shared, 2)
    shared.nodes[0].post("optimize", {"final": True}, wait_s=20)
    third.post("merges/resume")
    shared.wait_equal(keys)
    (part,) = shared.wait_alike()
    shared.wait_settled()
    assert sorted(map(sorted, shared.owners().values())) == [[f"r1 {part}", f"r2 {part}"], [f"r3 {part}"]]


@pytest.mark.slow
def test_two_that_made_the_same_have_made_the_same_rows_and_one_copy_stays(
    shared: SharedCluster, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if marks said nothing: what both made has one content hash, and the later one takes over."""
    keys = fill(shared)

    def always(*_: object, **__: object) -> Any:
        yield from ()
        return Taken()

    monkeypatch.setattr(make_once, "take", always)
    gates.begin()
    gates.close()
    asked = merge_all(shared.nodes[0])
    wait_for(lambda: set(gates.makers()) == {"r1", "r2"}, "both have made it")
    gates.open("r1")
    wait_for(lambda: len(shared.nodes[0].contents()) == 1, "one has registered it")
    gates.open("r2")
    asked.join(30.0)
    shared.wait_equal(keys)
    shared.wait_settled()
    assert len({manifest.content_hash for _, manifest in gates.put}) == 1
    (part,) = shared.nodes[0].contents()
    assert list(shared.owners().values()) == [{f"r1 {part}", f"r2 {part}"}]


@pytest.mark.slow
@on(FOLDER, FAULTY)
def test_a_mutation_writes_each_part_once_whoever_writes_it(shared: SharedCluster, gates: Gates) -> None:
    fill(shared, 4)
    gates.begin()
    shared.nodes[0].post("mutations", {"sql": "DELETE FROM t WHERE k IN (3, 13, 23, 33)"}, wait_s=20)
    shared.wait_equal([key for key in range(40) if key % 10 != 3])
    shared.wait_settled()
    assert len(gates.put) == len(shared.nodes[0].contents())


def test_a_part_that_a_mutation_can_not_touch_is_neither_written_nor_read(shared: SharedCluster, gates: Gates) -> None:
    fill(shared, 2)
    shares = shared.shares()
    for node in shared.nodes:
        node.table().store.shared.evict(node.table().store.root / "parts", 0, 0.0)
    gates.begin()
    shared.nodes[0].post("mutations", {"sql": "DELETE FROM t WHERE k >= 1000", "partition": "all"}, wait_s=20)
    shared.wait_alike()
    assert (gates.put, gates.brought) == ([], [])
    assert shared.shares() == shares
    for node in shared.nodes:
        assert all(parse_part(part).mutation for part in node.contents())
        assert all(local_files(node, part) == {"manifest.json"} for part in node.contents())
    shared.wait_equal(list(range(20)))


@pytest.mark.slow
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_parts_that_borrow_from_each_other_leave_in_any_order(shared: SharedCluster, order: tuple[int, ...]) -> None:
    """A part and two mutations of it that leave it as it is; a third replica keeps the last one only."""
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    shared.wait_alike()
    chain = []
    leases = {node.name: list[str]() for node in shared.nodes}
    for number in range(3):
        (part,) = shared.wait_alike()
        chain.append(part)
        for node in shared.nodes:
            leases[node.name].append(node.table().old_parts.lease([part], 600.0))
        if number < 2:
            nothing = {"sql": f"DELETE FROM t WHERE k >= {1000 + number}", "partition": "all"}
            first.post("mutations", nothing, wait_s=20)
    shared.wait_alike()
    third = shared.add("r3")
    wait_for(lambda: shared.is_active(third), "r3 active")
    wait_for(lambda: list(third.contents()) == [chain[2]], "r3 has the last one only")
    (share,) = shared.shares()
    expected = {f"{name} {part}" for name in ("r1", "r2") for part in chain} | {f"r3 {chain[2]}"}
    wait_for(lambda: shared.owners()[share] == expected, "each part that is kept has a mark")
    first.post("drop", {"all": True}, wait_s=20)
    wait_for(lambda: f"r3 {chain[2]}" not in shared.owners()[share], "r3 has let go")
    for number in order:
        assert shared.stored() == {share}
        assert first.table().store.verify(chain[number]).rows == 10
        for node in (first, second):
            node.table().old_parts.release(leases[node.name][number])
    shared.wait_empty()


@pytest.mark.slow
def test_the_life_of_a_result_costs_each_replica_few_requests(
    shared: SharedCluster, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes it takes the mark by one request, and ends it with the registration; who waits asks, watches, asks again.

    Looks after all marks (`GetMany`) are not of its life: there is one every few seconds, however many there are.  Nor is the
    question of one that has waited for ten seconds, as it does where the machine is slow.
    """
    monkeypatch.setattr(progress, "POSTPONE_S_MAX", 600.0)
    fill(shared, 2)
    shared.wait_settled()
    asked: dict[str, list[str]] = {node.name: [] for node in shared.nodes}
    for node in shared.nodes:
        perform, seen = node.coordination.perform, asked[node.name]

        def counted(effect: object, perform: Any = perform, seen: list[str] = seen) -> object:
            seen.append(repr(effect))
            return perform(effect)

        monkeypatch.setattr(node.coordination, "perform", counted)
    gates.begin()
    shared.nodes[0].post("optimize", {"final": True}, wait_s=20)
    shared.wait_alike()
    (part,), (share,) = shared.nodes[0].contents(), {manifest.share_id for _, manifest in gates.put}
    shared.nodes[0].post("drop", {"all": True}, wait_s=20)
    shared.wait_empty()
    for name, seen in asked.items():
        of_share = [each for each in seen if f"/shared/{share}" in each or f"/writing/{share}" in each]
        assert 0 < len(of_share) <= 4, (name, of_share)
        of_mark = [each for each in seen if f"/merged/{part}" in each and each not in of_share]
        of_mark = [each for each in of_mark if not each.startswith("GetMany(")]
        assert 0 < len(of_mark) <= (1 if name == gates.put[0][0] else 3), (name, of_mark)


@pytest.mark.slow
def test_a_mutation_that_is_killed_while_another_replica_makes_it_leaves_everything(
    shared: SharedCluster, gates: Gates
) -> None:
    keys = fill(shared, 2)
    shares = shared.shares()
    gates.begin()
    gates.close()
    index = shared.nodes[0].post("mutations", {"sql": "DELETE FROM t WHERE k IN (3, 13)"}, wait_s=0)["index"]
    wait_for(lambda: len(gates.put) == 2, "both parts are being made")
    status, killed = shared.nodes[0].request("DELETE", f"/v1/tables/t/mutations/{index}?wait_s=0")
    assert (status, killed["killed"]) == (200, 2)
    gates.open()
    shared.wait_equal(keys)
    shared.wait_alike()
    shared.wait_settled()
    assert all(parse_part(part).mutation == index for part in shared.nodes[0].contents())
    assert shared.shares() == shares


@pytest.mark.slow
def test_a_merge_that_is_prepared_on_one_replica_is_not_made_by_another(
    shared: SharedCluster, gates: Gates, tmp_path: Path
) -> None:
    """The other one may begin as soon as the entry is there; the mark was taken before."""
    keys = fill(shared)
    first, second = shared.nodes
    gates.begin()
    gates.close()
    gates.open(second.name)
    body = make(first, plan_of(first), tmp_path / "made")
    sent = threading.Thread(target=send, args=(first, body))
    sent.start()
    wait_for(lambda: len(gates.put) == 1, "the prepared part is put")
    wait_for(lambda: "r1 makes " in reasons(second), "the other one waits")
    gates.open()
    sent.join(30.0)
    shared.wait_equal(keys)
    (part,) = shared.wait_alike()
    assert [(name, manifest.share_id in shared.shares()) for name, manifest in gates.put] == [(first.name, True)]
    assert {f"r1 {part}", f"r2 {part}"} in shared.owners().values()
