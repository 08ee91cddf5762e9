"""Mutations on an object store that write some files of a part anew: the result borrows the others, and owns what it has."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, Children, Commit, Create, Delete
from replitree.replica.parts import making
from replitree.storage.disk.store import PartStore
from replitree.storage.parts import encode
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest
from replitree.storage.rewrite.mutate import mutate_part
from replitree.storage.sql.mutation import delete_where
from tests.replica.inprocess import Node, rows, wait_for
from tests.replica.test_make_once import Gates, other_than
from tests.replica.test_sharing import TABLE, SharedCluster, local_files
from tests.shared.stores import FAULTY, FOLDER, on

FILES, FILE_ROWS = 3, 10
KEYS = list(range(FILES * FILE_ROWS))
STAGING, SHARE = "make-all_0_0_0_9", "9" * 32


def in_pieces(rows: pa.Table, _files_max: int, _group: int) -> list[pa.Table]:
    return [rows.slice(first, FILE_ROWS) for first in range(0, rows.num_rows, FILE_ROWS)]


class Borrowing(SharedCluster):
    """Two replicas with one part of several files, each with rows of its own."""

    def __init__(self, folder: Path, url: str, files: int = FILES) -> None:
        super().__init__(folder, url)
        for node in self.nodes:
            node.table().merges.choose = tuple  # type: ignore[method-assign]
        assert self.nodes[0].insert(rows(0, files * FILE_ROWS))[0] == 200
        (self.part,) = self.wait_alike()
        (self.share,) = self.shares()

    def delete(self, where: str, wait_s: float = 20) -> None:
        """Delete rows at the first replica."""
        self.nodes[0].post("mutations", {"sql": f"DELETE FROM t WHERE {where}"}, wait_s=wait_s)

    def manifest(self, node: int = 0) -> PartManifest:
        """What a replica says of its only part."""
        (part,) = self.nodes[node].contents()
        return self.nodes[node].table().store.manifest(part)

    def has(self, names: str = "r1 r2") -> set[str]:
        """The marks that the only part has on each of its shares."""
        (part,) = self.nodes[0].contents()
        return {f"{name} {part}" for name in names.split()}

    def bytes_of(self, share: str) -> int:
        """Bytes of the data files in a share."""
        found = self.objects.list(f"tables/{self.definition.table_id}/{share}")
        return sum(each.bytes for each in found if not each.key.endswith(MANIFEST_FILE))


@pytest.fixture
def shared(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Borrowing]:
    monkeypatch.setattr(encode, "_cut", in_pieces)
    cluster = Borrowing(tmp_path, store_url)
    yield cluster
    cluster.close()


@pytest.fixture
def gates(shared: Borrowing, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gates]:
    found = Gates(shared, monkeypatch)
    yield found
    found.open()


def alone(cluster: Borrowing) -> set[str]:
    """Wait until nothing is left over, and return the shares that there are."""
    cluster.wait_settled()
    return cluster.stored()


@on(FOLDER, FAULTY)
def test_a_mutation_puts_the_files_that_it_touches_and_borrows_the_others(shared: Borrowing, gates: Gates) -> None:
    before = shared.manifest()
    shared.delete("k = 0")
    shared.wait_equal(KEYS[1:])
    shared.wait_settled()
    ((_, put),) = gates.put
    assert put.share_id is not None
    assert put.borrowed == {shared.share: before.files[1:]}
    assert [file.name for file in put.own_files] == ["data-3.parquet"]
    assert shared.bytes_of(put.share_id) == put.own_files[0].bytes
    assert shared.owners() == {shared.share: shared.has(), put.share_id: shared.has()}
    assert shared.manifest(0) == shared.manifest(1) == put
    other = other_than(shared, gates.makers()[0])
    assert local_files(other, next(iter(other.contents()))) <= {MANIFEST_FILE, *(file.name for file in put.files)}


def test_who_takes_a_part_over_that_borrows_is_sent_its_manifest_alone(shared: Borrowing, gates: Gates) -> None:
    shared.delete("k = 0")
    other = other_than(shared, gates.makers()[0])
    shared.wait_alike()
    (part,) = other.contents()
    assert local_files(other, part) == {MANIFEST_FILE}
    assert other.table().store.verify(part).rows == len(KEYS) - 1


@pytest.mark.slow
def test_a_file_that_loses_all_its_rows_is_left_out_and_nothing_is_put(shared: Borrowing, gates: Gates) -> None:
    shared.delete(f"k < {FILE_ROWS}")
    shared.wait_equal(KEYS[FILE_ROWS:])
    shared.wait_settled()
    ((_, put),) = gates.put
    assert (put.own_files, len(put.borrowed[shared.share])) == ((), FILES - 1)
    assert shared.bytes_of(str(put.share_id)) == 0
    shared.nodes[0].post("drop", {"all": True}, wait_s=20)
    shared.wait_empty()


@pytest.mark.slow
def test_a_merge_ends_the_borrowing(shared: Borrowing, gates: Gates) -> None:
    shared.delete("k = 0")
    assert len(alone(shared)) == 2
    gates.begin()
    shared.nodes[0].post("optimize", {"final": True}, wait_s=20)
    shared.wait_equal(KEYS[1:])
    ((_, merged),) = gates.put
    assert alone(shared) == {merged.share_id}


@pytest.mark.slow
def test_a_share_goes_when_all_its_files_were_written_anew(shared: Borrowing, gates: Gates) -> None:
    for number in range(FILES):
        shared.delete(f"k = {number * FILE_ROWS}")
        shared.wait_settled()
        assert (shared.share in shared.stored()) == (number < FILES - 1)
    shared.wait_equal([key for key in KEYS if key % FILE_ROWS])
    manifest = shared.manifest()
    assert len(manifest.shares) == FILES
    assert shared.stored() == set(manifest.shares)
    assert shared.owners() == dict.fromkeys(manifest.shares, shared.has())
    assert len(gates.put) == FILES


@pytest.mark.slow
def test_who_has_too_many_shares_is_written_anew_as_a_whole(
    shared: Borrowing, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "SHARES_MAX", 2)
    shared.delete("k = 0")
    shared.delete("k = 10")
    shared.wait_equal([key for key in KEYS if key not in {0, 10}])
    assert [len(put.shares) for _, put in gates.put] == [2, 1]
    assert alone(shared) == {gates.put[1][1].share_id}


@pytest.mark.slow
def test_rows_of_an_older_schema_version_are_written_anew(shared: Borrowing, gates: Gates) -> None:
    shared.nodes[0].post("alter", {"sql": "ALTER TABLE t ADD COLUMN w INT"}, wait_s=20)
    shared.delete("k = 0")
    shared.wait_equal(KEYS[1:])
    ((_, put),) = gates.put
    assert (len(put.shares), len(put.files)) == (1, FILES)
    assert alone(shared) == {put.share_id}


# --- leaving ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_parts_that_borrow_leave_in_any_order(shared: Borrowing, order: tuple[int, ...]) -> None:
    """A part and two mutations, each of which writes one file; a third replica has the last one only."""
    first, second = shared.nodes
    chain, leases = [], {node.name: list[str]() for node in shared.nodes}
    for number in range(3):
        (part,) = shared.wait_alike()
        chain.append(first.table().store.manifest(part))
        for node in shared.nodes:
            leases[node.name].append(node.table().old_parts.lease([part], 600.0))
        if number < 2:
            shared.delete(f"k = {number * FILE_ROWS}")
    names = [
        next(name for name in first.table().store.parts() if first.table().store.manifest(name) == each)
        for each in chain
    ]
    assert [len(each.shares) for each in chain] == [1, 2, 3]
    third = shared.add("r3")
    wait_for(lambda: shared.is_active(third), "r3 active")
    wait_for(lambda: list(third.contents()) == [names[2]], "r3 has the last one only")
    expected = {
        share: {
            f"{name} {part}"
            for part, each in zip(names, chain, strict=True)
            if share in each.shares
            for name in ("r1", "r2")
        }
        | {f"r3 {names[2]}"}
        for share in chain[2].shares
    }
    wait_for(lambda: shared.owners() == expected, "each part that is kept has a mark on each of its shares")
    first.post("drop", {"all": True}, wait_s=20)
    wait_for(lambda: not any(f"r3 {names[2]}" in owners for owners in shared.owners().values()), "r3 has let go")
    left = dict(enumerate(chain))
    for number in order:
        wait_for(
            lambda: shared.stored() == {share for each in left.values() for share in each.shares}, "what is needed"
        )
        for each in left:
            for node in (first, second):
                assert node.table().store.verify(names[each]).rows == len(KEYS) - each
        del left[number]
        for node in (first, second):
            node.table().old_parts.release(leases[node.name][number])
    shared.wait_empty()


@pytest.mark.slow
def test_a_replica_joins_when_the_lender_is_long_gone(shared: Borrowing) -> None:
    shared.delete("k = 0")
    shared.wait_settled()
    third = shared.add("r3")
    wait_for(lambda: shared.is_active(third) and third.keys() == KEYS[1:], "r3 has it")
    assert shared.manifest(2) == shared.manifest()
    wait_for(lambda: list(shared.owners().values()) == [shared.has("r1 r2 r3")] * 2, "the lender's marks are gone")
    first, second, _ = shared.nodes
    for node in (first, second):
        node.stop()
    assert third.keys() == KEYS[1:]


@pytest.mark.slow
def test_a_replica_that_has_lost_its_folder_takes_all_shares_over_again(shared: Borrowing) -> None:
    shared.delete("k = 0")
    shared.wait_settled()
    first, second = shared.nodes
    (part,), owners = second.contents(), shared.owners()
    shutil.rmtree(second.table().store.part_path(part))
    second.restart()
    wait_for(lambda: second.contents() == first.contents() != {}, "taken over again")
    assert shared.manifest(1).borrowed == shared.manifest(0).borrowed != {}
    wait_for(lambda: shared.owners() == owners, "it owns what it had")
    shared.wait_equal(KEYS[1:])


# --- what goes wrong ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_who_is_paused_for_longer_than_its_session_leaves_nothing(shared: Borrowing, gates: Gates) -> None:
    gates.close()
    shared.delete("k = 0", wait_s=0)
    wait_for(lambda: len(gates.put) == 1, "one has made it")
    (slow,) = gates.makers()
    slow_node, other = next(node for node in shared.nodes if node.name == slow), other_than(shared, slow)
    shared.shared.expire(slow_node.coordination.session_id)
    gates.open(other.name)
    wait_for(lambda: list(other.contents()) != [shared.part], "the other one has made it")
    gates.open(slow)
    wait_for(lambda: slow_node.contents() == other.contents(), "the slow one has it, too")
    shared.wait_settled()
    made = str(gates.put[1][1].share_id)
    assert shared.owners() == {shared.share: shared.has(), made: shared.has()}
    shared.wait_equal(KEYS[1:])


@pytest.mark.slow
def test_what_could_not_be_put_is_made_again_and_leaves_nothing(shared: Borrowing, gates: Gates) -> None:
    gates.failing = 1
    shared.delete("k = 0")
    shared.wait_equal(KEYS[1:])
    shared.wait_settled()
    assert [len(put.borrowed) for _, put in gates.put] == [1, 1]
    assert shared.owners() == {shared.share: shared.has(), str(gates.put[1][1].share_id): shared.has()}


def left_staged(node: Node, part: str) -> None:
    """Let the disk of a stopped replica be as when it was killed between the put of a result and its registration."""
    objects, definition = node.table().store.shared.objects, node.table().definition
    store = PartStore(node.table().store.root)
    store.shared.objects = objects
    source = store.manifest(part)
    store.bring((part,))
    mutation = delete_where("k = 0", definition)
    prefix = store.staging_prefix(STAGING)
    made = mutate_part(store.part_path(part), definition, mutation, store.staging, prefix=prefix, keep_files=True)
    assert made is not None
    store.staged.note_borrowed(STAGING, made, source)
    store.staged.put(STAGING, store.staged_path(STAGING, "all"), made, SHARE)
    ((_, staged),) = store.staged.parts(STAGING)
    assert staged.shares == (SHARE, *source.shares)


@pytest.mark.slow
def test_what_a_killed_mutation_has_left_goes_with_the_next_start(shared: Borrowing) -> None:
    first, _ = shared.nodes
    sharing = first.table().sharing
    assert sharing is not None
    signature = sharing.sharer.signature
    first.stop()
    left_staged(first, shared.part)
    shared.admin.perform(Commit(Create(layout.writing(TABLE, SHARE), signature)))
    assert shared.stored() == {shared.share, SHARE}
    first.restart()
    wait_for(lambda: shared.is_active(first), "active again")
    wait_for(lambda: shared.stored() == {shared.share}, "what was begun is gone, and nothing else")
    shared.wait_settled()
    assert shared.owners() == {shared.share: shared.has()}
    shared.wait_equal(KEYS)


@pytest.mark.slow
def test_a_start_owns_again_what_it_borrows_and_has_lost_the_mark_of(shared: Borrowing) -> None:
    shared.delete("k = 0")
    shared.wait_settled()
    owners, place = shared.owners(), layout.share(TABLE, shared.share)
    (mark,) = [name for name in shared.admin.perform(Children(place)) if name.startswith("r2~")]
    shared.admin.perform(Commit(Delete(f"{place}/{mark}", ANY_VERSION)))
    second = shared.nodes[1]
    second.restart()
    wait_for(lambda: shared.is_active(second) and shared.owners() == owners, "active again, with its mark")


@pytest.mark.slow
def test_a_share_that_can_not_be_read_from_here_is_taken_as_data_whoever_lends_it(
    shared: Borrowing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third replica has found the lender's objects broken once; it takes the result's rows instead."""
    third = shared.add("r3", merge="fetch")
    wait_for(lambda: shared.is_active(third) and third.keys() == KEYS, "r3 has all rows")
    monkeypatch.setattr(third.table().mover, "work", lambda _: None)  # which would put the rows into a share of its own
    third.table().store.shared.distrust(shared.share, "data-0.parquet")
    shared.delete("k = 0")
    shared.wait_equal(KEYS[1:])
    shared.wait_settled()
    assert shared.manifest(2).share_id is None
    assert list(shared.owners().values()) == [shared.has()] * 2


# --- whoever else reads it ----------------------------------------------------------------------------------------------------


def test_a_peer_that_knows_nothing_of_borrowing_is_sent_the_rows(shared: Borrowing) -> None:
    shared.delete("k = 0")
    (part,) = shared.wait_alike()
    for node in shared.nodes:
        for version, is_shared in ((1, False), (2, True), (3, True)):
            query = f"part={part}&send_s3_metadata=1&s3_metadata_version={version}"
            status, bundle = node.request("GET", f"/v1/tables/t/bundle?{query}")
            assert status == 200
            header, manifest = read_first(bundle)
            assert (header["shared"], "share" in manifest) == (is_shared, is_shared)
            assert (b"PAR1" in bundle) is not is_shared


def read_first(bundle: bytes) -> tuple[dict[str, object], dict[str, object]]:
    """Header and manifest of the first part of a bundle."""
    size = int.from_bytes(bundle[:4], "little")
    header = json.loads(bundle[4 : 4 + size])
    return header, json.loads(bundle[4 + size : 4 + size + header["manifest_bytes"]])


@pytest.mark.slow
@pytest.mark.parametrize(
    "take_out",
    [
        lambda node: node.post("drop", {"all": True, "detach": True}, wait_s=20),
        lambda node: [node.post("freeze", {"name": "kept"}), node.post("drop", {"all": True}, wait_s=20)],
    ],
    ids=["detached", "frozen"],
)
def test_what_is_taken_out_has_all_its_rows(shared: Borrowing, take_out: Callable[[Node], object]) -> None:
    shared.delete("k = 0")
    shared.wait_settled()
    first, _ = shared.nodes
    take_out(first)
    shared.wait_empty()
    root = first.table().store.root
    (kept,) = [path.parent for path in [*root.glob("detached/*/*.json"), *root.glob("frozen/*/**/manifest.json")]]
    assert sum(pq.read_table(file).num_rows for file in kept.glob("*.parquet")) == len(KEYS) - 1
    if kept.parent.name == "detached":
        assert first.post("attach", {"name": kept.name})["rows"] == len(KEYS) - 1
        shared.wait_equal(KEYS[1:])
        assert len(alone(shared)) == 1
