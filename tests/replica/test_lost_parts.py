"""Parts that no replica has any more: declared lost only when that is certain, and then empty on every replica."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replitree.protocol.parts import inserted_part
from replitree.protocol.table import Outcome, drop_replica
from replitree.replica.table_replica import State
from replitree.storage.empty import empty_content
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


def lost_count(node: Node) -> float:
    value = node.server.metrics.registry.get_sample_value("replitree_lost_parts_total", {"table": "t"})  # type: ignore[union-attr]
    return value or 0.0


def test_a_part_that_one_replica_still_has_is_fetched_again_and_never_lost(impatient: InProcessCluster) -> None:
    first, second = impatient.nodes
    index = first.insert(rows(0))[1]["index"]
    impatient.wait_equal(list(range(10)))
    break_part(second, inserted_part("all", index).name)
    impatient.wait_equal(list(range(10)))
    assert lost_count(first) + lost_count(second) == 0
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
    assert impatient.run(drop_replica(first.table().replica)) is Outcome.DONE
    wait_for(lambda: lost_count(second) == 1, "nobody else can have them")
    wait_for(lambda: second.contents() == {part: empty_content(second.table().definition)}, "the part is empty")
    assert second.table().state is State.ACTIVE
    impatient.close()
