"""What `/metrics` shows beside the counters: the process, the server, and nothing of tables that are gone."""

from __future__ import annotations

import re

from tests.replica.inprocess import InProcessCluster, rows, wait_for


def values(text: bytes, name: str) -> dict[str, float]:
    """The samples of a metric, by their labels."""
    found = re.findall(rf"^{name}(?:{{(.*?)}})? (\S+)$", text.decode(), re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_the_process_and_the_server_are_shown(cluster: InProcessCluster) -> None:
    _, text = cluster.nodes[0].request("GET", "/metrics")
    assert values(text, "process_resident_memory_bytes")[""] > 10e6
    assert values(text, "process_open_fds")[""] > 3
    assert len(values(text, "python_gc_collections_total")) == 3
    (labels,) = values(text, "replitree_info")
    assert labels.startswith('replica="r1",version="')
    assert values(text, "replitree_ready") == {"": 1.0}
    assert 0 < values(text, "replitree_disk_free_bytes")[""] < values(text, "replitree_disk_size_bytes")[""]
    states = values(text, "replitree_state")
    assert [labels for labels, value in states.items() if value] == ['state="active",table="t"']
    assert len(states) == 6


def test_nothing_is_shown_of_a_table_that_was_dropped(cluster: InProcessCluster) -> None:
    nodes = cluster.nodes
    for node in nodes:
        wait_for(lambda node=node: b'replitree_parts_max{table="t"}' in node.request("GET", "/metrics")[1], "measured")  # type: ignore[misc]
    with cluster.connect() as connection:
        connection.drop_table("t")
    for node in nodes:
        wait_for(lambda node=node: b'table="t"' not in node.request("GET", "/metrics")[1], "forgotten")  # type: ignore[misc]


def test_gauges_of_alerts_follow_the_table(cluster: InProcessCluster) -> None:
    node, table = cluster.nodes[0], '{table="t"}'
    with cluster.connect() as connection:
        for each in cluster.nodes:
            each.table().maker.is_paused = True
        for first in range(0, 30, 10):
            connection.table("t").insert(rows(first))

    def shown(name: str) -> float | None:
        return values(node.request("GET", "/metrics")[1], f"replitree_{name}").get(table[1:-1])

    wait_for(lambda: shown("partition_parts") == 3.0, "three parts")
    wait_for(lambda: shown("merges_paused") == 1.0, "paused")
    settings = node.table().definition.settings
    assert (shown("parts_delay"), shown("parts_max")) == (settings.parts_delay, settings.parts_max)
    for name in ("postponed_seconds", "unavailable_parts", "declared_lost_parts", "moving_tries", "store_problem"):
        assert shown(name) == 0.0, name
