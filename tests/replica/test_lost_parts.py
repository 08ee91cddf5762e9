"""Parts that no replica has any more: declared lost only when that is certain, and then empty on every replica."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from replitree.protocol.core import effects, layout
from replitree.protocol.core import effects as fx
from replitree.protocol.core.parts import inserted_part, parse_part
from replitree.protocol.membership.table import HALF_BUILT, TableOutcome, drop_replica
from replitree.protocol.state.registration import broken_value, content_of, is_broken
from replitree.protocol.upkeep.lost import Declared, Undecided, declare_lost
from replitree.replica.http import http_exchange
from replitree.replica.perform.availability import State
from replitree.replica.perform.exchange import FRAME, BundleHeader
from replitree.replica.table import mending
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.rewrite.empty import empty_content
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for


@pytest.fixture
def impatient(tmp_path: Path) -> InProcessCluster:
    """Two replicas that do not wait before they ask whether a part is lost."""
    cluster = InProcessCluster(tmp_path, lost_part_after_s=0.0)
    cluster.create_table()
    return cluster


def break_part(node: Node, part: str) -> None:
    """Damage a data file of a part, and let the replica notice."""
    store = node.table().store
    file = store.file_path(part, store.manifest(part).files[0].name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.chmod(0o600)
    file.write_bytes(bytes(content))
    assert not node.table().suspect(part)


def registered(node: Node, part: str) -> bytes:
    """Return the value with which a replica has registered a part."""
    found = node.coordination.perform(fx.Get(layout.part(node.table().replica, part)))
    assert isinstance(found, effects.Node)
    return found.value


def lost_count(node: Node) -> float:
    value = node.server.metrics.registry.get_sample_value("replitree_lost_parts_total", {"table": "t"})  # type: ignore[union-attr]
    return value or 0.0


def no_sends(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """SYSTEM STOP REPLICATED SENDS: whoever asks this replica for a part hears that it is not there."""
    send = http_exchange._bundle_piece  # noqa: SLF001 - there is no such command
    stopped = node.table()

    def not_here(table: TableReplica, part: str, *, shares: int = 0) -> bytes:
        header = msgspec.json.encode(BundleHeader(part, 0, inline=False))
        return FRAME.pack(len(header)) + header if table is stopped else send(table, part, shares=shares)

    monkeypatch.setattr(http_exchange, "_bundle_piece", not_here)


def no_fetches(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """SYSTEM STOP FETCHES."""

    def none(fetches: Sequence[fx.FetchPart]) -> tuple[fx.NotFetched, ...]:
        return tuple(fx.NotFetched(fetch.part, "fetches are stopped") for fetch in fetches)

    monkeypatch.setattr(node.table().exchange, "fetch", none)


def remove_files(node: Node, part: str) -> None:
    """Remove a part's files; who reads it then is told what to do, and the replica goes on."""
    store = node.table().store
    path = f"/v1/tables/t/parts/{part}/files/{store.manifest(part).files[0].name}"
    assert node.request("GET", path)[0] == 200
    shutil.rmtree(store.part_path(part))
    status, answer = node.request("GET", path)
    assert (status, answer["error"]) == (410, "SnapshotExpired")


def merged(node: Node) -> str:
    """Merge everything that is free, by this replica; return the name of the result when it is there."""
    node.post("optimize", {"final": True}, wait_s=20)
    wait_for(lambda: [name for name in node.contents() if parse_part(name).level], f"{node.name} has a merged part")
    (name,) = (name for name in node.contents() if parse_part(name).level)
    return name


def assert_nothing_intersects(node: Node) -> None:
    """Of any two parts that the replica has registered, none shares blocks with another."""
    replica = node.table().replica
    names = node.coordination.perform(fx.Children(layout.parts(replica))) or ()
    pairs = itertools.combinations(map(parse_part, names), 2)
    assert not [pair for pair in pairs if pair[0].intersects(pair[1]) or pair[0].covers(pair[1])], names


def test_02369_a_merged_part_that_is_gone_while_the_other_replica_has_still_to_merge(
    impatient: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = impatient.nodes
    for key in (1, 2):
        assert first.insert(rows(key, 1))[0] == 200
    impatient.wait_equal([1, 2])
    second.post("merges/pause")
    with monkeypatch.context() as stopped:
        no_fetches(second, stopped)
        gone = merged(first)
        assert (first.keys(), list(first.contents())) == ([1, 2], [gone])
        assert second.keys() == [1, 2]
        assert len(second.contents()) == 2
        remove_files(first, gone)
        first.restart()
        wait_for(lambda: first.insert(rows(3, 1))[0] == 200, "the first takes inserts again")
        wait_for(lambda: first.table().lost_parts.reasons.get(gone), "the first asks whether the part is lost")
        assert "r2 has" in first.table().lost_parts.reasons[gone]
    second.post("merges/resume")
    impatient.wait_equal([1, 2, 3])
    whole = merged(first)
    assert parse_part(whole).covers(parse_part(gone))
    impatient.wait_equal([1, 2, 3])
    assert list(impatient.wait_alike()) == [whole]
    assert lost_count(first) + lost_count(second) == 0
    for node in impatient.nodes:
        assert_nothing_intersects(node)
    assert second.insert(rows(4, 1))[0] == 200
    impatient.wait_equal([1, 2, 3, 4])
    impatient.close()


@pytest.mark.parametrize("sends_before", [True, False])
def test_02370_a_merged_part_that_is_gone_beside_a_part_that_nobody_sends(
    impatient: InProcessCluster, monkeypatch: pytest.MonkeyPatch, *, sends_before: bool
) -> None:
    first, second = impatient.nodes
    with monkeypatch.context() as stopped:
        no_sends(second, stopped)
        assert second.insert(rows(0, 1))[0] == 200
        for key in (1, 2):
            assert first.insert(rows(key, 1))[0] == 200
        wait_for(lambda: first.keys() == [1, 2], "the first has what it wrote")
        first.post("optimize", {}, wait_s=0)
        wait_for(lambda: len(first.contents()) == 1, "the first has merged it")
        (gone,) = first.contents()
        if sends_before:
            stopped.undo()
            impatient.wait_equal([0, 1, 2])
        remove_files(first, gone)
        first.restart()
        wait_for(lambda: first.insert(rows(3, 1))[0] == 200, "the first takes inserts again")
    impatient.wait_equal([0, 1, 2, 3])
    whole = merged(first)
    impatient.wait_equal([0, 1, 2, 3])
    assert list(impatient.wait_alike()) == [whole]
    assert lost_count(first) + lost_count(second) == 0
    for node in impatient.nodes:
        assert_nothing_intersects(node)
    impatient.close()


def test_a_part_that_one_replica_still_has_is_fetched_again_and_never_lost(impatient: InProcessCluster) -> None:
    first, second = impatient.nodes
    index = first.insert(rows(0))[1]["index"]
    impatient.wait_equal(list(range(10)))
    break_part(second, inserted_part("all", index).name)
    impatient.wait_equal(list(range(10)))
    assert lost_count(first) + lost_count(second) == 0
    impatient.close()


def test_a_part_that_was_noted_broken_and_brought_back_by_hand_is_said_to_be_whole(
    impatient: InProcessCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = impatient.nodes
    index = first.insert(rows(0))[1]["index"]
    impatient.wait_equal(list(range(10)))
    part = inserted_part("all", index).name
    path, kept = second.table().store.part_path(part), tmp_path / "kept"
    whole = registered(second, part)
    shutil.copytree(path, kept)
    no_sends(first, monkeypatch)
    break_part(second, part)
    wait_for(lambda: is_broken(registered(second, part)), "the second says that it is broken")
    second.stop()
    shutil.copytree(kept, path)
    second.restart()
    wait_for(lambda: registered(second, part) == whole, "the second says that it is whole again")
    impatient.wait_equal(list(range(10)))
    assert lost_count(first) + lost_count(second) == 0
    impatient.close()


def test_a_note_that_a_part_is_broken_is_taken_back_although_its_answer_was_lost(
    impatient: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = impatient.nodes
    index = first.insert(rows(0))[1]["index"]
    impatient.wait_equal(list(range(10)))
    part = inserted_part("all", index).name
    whole, perform, late = registered(second, part), second.coordination.perform, list[fx.Commit]()
    node = layout.part(second.table().replica, part)

    def lose_note(effect: fx.CoordinationEffect) -> object:
        is_note = isinstance(effect, fx.Commit) and any(
            isinstance(each, fx.Set) and each.path == node and is_broken(each.value) for each in effect.operations
        )
        if not is_note or late:
            return perform(effect)
        assert isinstance(effect, fx.Commit)
        late.append(effect)
        monkeypatch.undo()  # the first sends the part again: the second has it before the note takes place
        second.table().mending.mend()
        assert second.table().store.has_part(part)
        assert isinstance(perform(effect), fx.Applied)
        return fx.Unknown()

    no_sends(first, monkeypatch)
    monkeypatch.setattr(second.coordination, "perform", lose_note)
    break_part(second, part)
    wait_for(lambda: late, "the second notes that it is broken")
    wait_for(lambda: registered(second, part) == whole, "it notes that the part is whole again")
    impatient.wait_equal(list(range(10)))
    impatient.close()


def test_a_note_that_a_recovery_took_over_from_its_source_is_taken_back(impatient: InProcessCluster) -> None:
    first, second = impatient.nodes
    index = first.insert(rows(0))[1]["index"]
    impatient.wait_equal(list(range(10)))
    part = inserted_part("all", index).name
    whole, path = registered(second, part), layout.part(second.table().replica, part)
    second.table().mending.mend()
    content = content_of(whole)
    first.coordination.perform(fx.Commit(fx.Set(path, broken_value(content, is_searched=True), fx.ANY_VERSION)))
    second.table().availability.session_began()
    wait_for(lambda: registered(second, part) == whole, "it notes that the part is whole")
    impatient.close()


def test_a_part_that_is_broken_everywhere_is_lost_and_may_be_inserted_again(impatient: InProcessCluster) -> None:
    first, second = impatient.nodes
    index = first.insert(rows(0), token="once")[1]["index"]
    first.insert(rows(20))
    impatient.wait_equal([*range(10), *range(20, 30)])
    part = inserted_part("all", index).name
    second.stop()
    shutil.rmtree(second.table().store.part_path(part))
    break_part(first, part)
    wait_for(lambda: first.table().lost_parts.reasons.get(part), "the first asks, and the second has it")
    assert "r2 has" in first.table().lost_parts.reasons[part]
    second.restart()
    wait_for(lambda: lost_count(first) + lost_count(second) == 1, "one of them declares it lost")
    empty = empty_content(first.table().definition)
    for node in impatient.nodes:
        wait_for(lambda node=node: node.contents().get(part) == empty, f"{node.name} has the empty part")  # type: ignore[misc]
    impatient.wait_equal(list(range(20, 30)))
    assert first.insert(rows(0), token="once")[1]["outcome"] == "inserted"
    impatient.wait_equal([*range(10), *range(20, 30)])
    first.post("optimize", {"final": True})
    impatient.wait_equal([*range(10), *range(20, 30)])
    impatient.close()


@pytest.mark.slow
def test_a_part_is_lost_that_broke_before_its_registration_took_place(
    impatient: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = impatient.nodes
    replica, perform, late = second.table().replica, second.coordination.perform, list[fx.Commit]()

    def delay(effect: fx.CoordinationEffect) -> object:
        operations = effect.operations if isinstance(effect, fx.Commit) and not late else ()
        created = (each.path for each in operations if isinstance(each, fx.Create))
        for path in created:
            if path.startswith(f"{layout.parts(replica)}/"):
                assert isinstance(effect, fx.Commit)
                late.append(effect)
                part = path.rpartition("/")[2]
                shutil.rmtree(second.table().store.part_path(part))
                break_part(first, part)
                return fx.Unknown()
        answer = perform(effect)
        if late and effect == fx.Children(layout.parts(replica)):
            # The second has read its queue and registrations again, to see what came of the commit: only now it takes place.
            perform(late[0])
        return answer

    monkeypatch.setattr(second.coordination, "perform", delay)
    monkeypatch.setattr(mending, "ASK_AGAIN_S", 0.1)
    first.insert(rows(0), token="once")
    wait_for(lambda: lost_count(first) + lost_count(second) == 1, "one of them declares it lost")
    # The commit of the loss has fenced both: until they are active again they refuse inserts.
    wait_for(lambda: first.insert(rows(20), token="later")[0] == 200, "the first takes inserts again")
    impatient.wait_equal(list(range(20, 30)))
    wait_for(lambda: first.insert(rows(0), token="once")[0] == 200, "the lost rows are inserted again")
    impatient.wait_equal([*range(10), *range(20, 30)])
    impatient.close()


def test_the_rows_of_a_replica_that_is_away_are_not_lost_until_it_is_dropped(impatient: InProcessCluster) -> None:
    first, second = impatient.nodes
    second.stop()
    index = first.insert(rows(0))[1]["index"]
    wait_for(lambda: first.keys() == list(range(10)), "the writer has its rows")
    first.stop()
    shutil.rmtree(first.table().store.part_path(inserted_part("all", index).name))  # its HTTP server still answers
    second.restart()
    part = inserted_part("all", index).name
    wait_for(lambda: second.table().lost_parts.reasons.get(part), "the second can't get them, and asks")
    assert "r1 has" in second.table().lost_parts.reasons[part]
    assert lost_count(second) == 0
    assert impatient.run(drop_replica(first.table().replica)) is TableOutcome.DONE
    wait_for(lambda: lost_count(second) == 1, "nobody else can have them")
    wait_for(lambda: second.contents() == {part: empty_content(second.table().definition)}, "the part is empty")
    assert second.table().availability.state is State.ACTIVE
    impatient.close()


def lose_source(first: Node, second: Node, made: str, source: str) -> None:
    """Break what the first has made, and on the second what it is still to make it of; wait until that is declared lost."""
    break_part(first, made)
    wait_for(lambda: is_broken(registered(first, made)), "the first says that it is broken")
    break_part(second, source)
    wait_for(lambda: lost_count(first) + lost_count(second) == 1, "one of them declares the source lost")


@pytest.mark.slow
def test_what_was_merged_of_a_lost_part_and_is_broken_is_made_anew_of_what_is_left(
    impatient: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = impatient.nodes
    source = inserted_part("all", first.insert(rows(1, 1), token="once")[1]["index"]).name
    first.insert(rows(2, 1))
    impatient.wait_equal([1, 2])
    second.post("merges/pause")
    with monkeypatch.context() as stopped:
        no_fetches(second, stopped)
        made = merged(first)
        before = first.contents()[made]
        lose_source(first, second, made, source)
    second.post("merges/resume")
    impatient.wait_equal([2])
    parts = impatient.wait_alike()
    assert list(parts) == [made]
    assert parts[made] != before
    assert registered(first, made) == parts[made].encode()
    assert first.insert(rows(1, 1), token="once")[1]["outcome"] == "inserted"
    impatient.wait_equal([1, 2])
    impatient.close()


def test_a_part_that_got_other_content_while_it_was_lacking_is_shown_again(impatient: InProcessCluster) -> None:
    first, _ = impatient.nodes
    index = first.insert(rows(0))[1]["index"]
    impatient.wait_equal(list(range(10)))
    part, table = inserted_part("all", index).name, first.table()
    table.progress.hide((part,))
    table.lacking[part] = "what it had before, when the answer to the commit that changed it was lost"
    wait_for(lambda: first.keys() == list(range(10)), "the first shows what is registered and on its disk")
    assert part not in table.lacking
    assert lost_count(first) == 0
    impatient.close()


@pytest.mark.parametrize("begins", [True, False])
def test_a_part_is_not_declared_lost_while_another_replica_begins_to_recover(
    impatient: InProcessCluster, *, begins: bool
) -> None:
    first, second = impatient.nodes
    part = inserted_part("all", first.insert(rows(0))[1]["index"])
    impatient.wait_equal(list(range(10)))
    one, other, admin = first.table().replica, second.table().replica, impatient.admin
    empty = empty_content(first.table().definition)
    for node in impatient.nodes:
        broken = broken_value(content_of(registered(node, part.name)), is_searched=True)
        node.stop()
        admin.perform(fx.Commit(fx.Set(layout.part(node.table().replica, part.name), broken, fx.ANY_VERSION)))
    epoch = fx.Epoch(admin.perform(fx.Get(layout.host(one))).version)
    declaring = declare_lost(one, epoch, part, empty, 1)
    effect = next(declaring)
    while not isinstance(effect, fx.Commit):
        effect = declaring.send(admin.perform(effect))
    if begins:
        admin.perform(fx.Commit(fx.Set(layout.is_lost(other), HALF_BUILT, fx.ANY_VERSION)))
    with pytest.raises(StopIteration) as stop:
        declaring.send(admin.perform(effect))
    assert isinstance(stop.value.value, Undecided if begins else Declared)
    impatient.close()
