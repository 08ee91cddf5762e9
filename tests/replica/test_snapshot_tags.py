"""Tags of snapshots: a replica tells a reader by one short answer whether the snapshot that the reader keeps is the newest."""

from __future__ import annotations

from typing import Any

from tests.replica.inprocess import InProcessCluster, Node, rows


def is_unchanged(node: Node, tag: str, **query: Any) -> bool:
    """Ask whether a snapshot is still the same; the answer has no parts and gives no lease."""
    answer: dict[str, Any] = node.get("snapshot", tag=tag, lease_s=60, **query)
    assert answer["parts"] == []
    assert not {"lease", "tag", "unread"} & answer.keys()
    unchanged = answer["unchanged"]
    assert isinstance(unchanged, bool)
    return unchanged


def test_tag_stays_while_nothing_changes_and_no_longer(cluster: InProcessCluster) -> None:
    node = cluster.nodes[0]
    tag = node.get("snapshot")["tag"]
    assert is_unchanged(node, tag)
    index = node.insert(rows(0))[1]["index"]
    assert not is_unchanged(node, tag, min_index=index + 1)
    second = node.get("snapshot", min_index=index + 1)["tag"]
    assert is_unchanged(node, second, level="linearizable")
    altered = node.post("alter", {"sql": "add column w int"})["index"]
    assert not is_unchanged(node, second, min_index=altered + 1)
    third = node.get("snapshot", min_index=altered + 1)["tag"]
    node.post("drop", {"all": True})
    assert len({tag, second, third, node.get("snapshot", level="linearizable")["tag"]}) == 4


def test_replicas_and_tables_have_tags_of_their_own(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes[:2]
    tags = {node.get("snapshot", level="linearizable")["tag"] for node in (first, second)}
    assert len(tags) == 2, "the files of two replicas lie in different places"
    cluster.create_table("u")
    tags.add(first.get("snapshot", table="u", level="linearizable")["tag"])
    assert len(tags) == 3


def test_snapshot_that_a_condition_has_pruned_has_no_tag(cluster: InProcessCluster) -> None:
    answer = cluster.nodes[0].get("snapshot", where="k > 5", columns=1)
    assert "tag" not in answer
