"""What the planner of the catalog asks replicas and coordination for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from typing_extensions import override

from replitree.client.connection import Connection
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import TableNotFound
from replitree.spark.catalog import planner
from replitree.spark.catalog.planner import Planner
from replitree.spark.catalog.requests import CatalogSettings, PlannerRequest
from replitree.spark.session import written
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.definition import define_table
from replitree.wire.ticket import read_ticket
from tests.client.conftest import TOKEN, FakeCluster
from tests.client.fake_replica import Failure, FakeReplica

LOAD = PlannerRequest(1, "load", table="t")


class CountedCoordination(MemoryCoordination):
    """Coordination that counts what it is asked for."""

    effects = 0

    @override
    def perform(self, effect: Any) -> Any:
        self.effects += 1
        return super().perform(effect)


class Planned:
    """A planner, the coordination that it asks, and the only replica of its table `t`."""

    def __init__(self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster.create("t", "k bigint not null, v double", order_by="k")
        self.replica: FakeReplica = cluster.add_replica("t", "r1")
        self.coordination = CountedCoordination(cluster.tree)
        self.connection = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: self.coordination)
        monkeypatch.setattr(planner, "connect", lambda *_, **__: self.connection)
        # Every load asks; a test of loads that share an answer sets another time.
        monkeypatch.setattr(planner, "NEWEST_S", 0.0)
        self.planner = Planner(CatalogSettings(url="zk://nowhere:1/replitree", master="local[1]"))

    def show(self, index: int, tag: str = "") -> None:
        """Let the replica show a snapshot; without a tag as replicas do that are older than tags."""
        body = {"index": index, "schema_version": 1, "replica": "r1", "machine": self.replica.machine, "parts": []}
        self.replica.snapshot = {**body, "lease": "some", "lease_s": 60.0, **({"tag": tag} if tag else {})}

    def load(self) -> tuple[dict[str, Any], list[str], int]:
        """Load the table; return the answer, the requests to the replica, and the number of those to coordination."""
        self.replica.seen.clear()
        before = self.coordination.effects
        answer = self.planner.load(LOAD)
        asked = [" ".join(sorted({"tag", "lease_s"} & seen.query.keys())) for seen in self.replica.seen]
        assert {f"{seen.method} {seen.path}" for seen in self.replica.seen} == {"GET /v1/tables/t/snapshot"}
        return answer, asked, self.coordination.effects - before


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    made = FakeCluster(tmp_path)
    yield made
    made.close()


@pytest.fixture
def planned(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Planned(cluster, monkeypatch)
    yield made
    made.connection.close()


def test_load_of_an_unchanged_table_is_one_short_request_to_a_replica_and_none_to_coordination(
    planned: Planned,
) -> None:
    planned.show(7, "one")
    first, asked, effects = planned.load()
    assert asked == ["lease_s"]
    assert effects > 0
    for _ in range(3):
        assert planned.load() == (first, ["tag"], 0)


def test_load_after_a_change_gives_the_new_snapshot_and_reads_the_definition_once(planned: Planned) -> None:
    planned.show(7, "one")
    first, _, _ = planned.load()
    planned.show(8, "two")
    second, asked, effects = planned.load()
    assert (first["index"], second["index"]) == (7, 8)
    assert asked[0] == "tag"
    assert asked[-1] == "lease_s"
    assert effects > 0
    assert planned.load() == (second, ["tag"], 0)


def test_replica_that_is_older_than_tags_is_asked_for_whole_snapshots(planned: Planned) -> None:
    planned.show(7)
    first, _, _ = planned.load()
    again, asked, _ = planned.load()
    assert (again, asked) == (first, [""])
    planned.show(8)
    assert planned.load()[0]["index"] == 8


def test_replica_that_was_replaced_by_an_older_one_is_asked_for_the_whole_snapshot(planned: Planned) -> None:
    planned.show(7, "one")
    planned.load()
    planned.show(9)
    answer, asked, _ = planned.load()
    assert answer["index"] == 9
    assert asked[0] == "tag"


def test_table_that_its_replicas_have_left_is_looked_for_in_coordination(planned: Planned) -> None:
    planned.show(7, "one")
    planned.load()
    before = planned.coordination.effects
    planned.replica.answers["GET snapshot"] = Failure(404, "TableNotFound", "dropped")
    with pytest.raises(TableNotFound):
        planned.planner.load(LOAD)
    assert planned.coordination.effects > before


def test_level_that_is_asked_for_goes_with_the_tag(planned: Planned) -> None:
    planned.show(7, "one")
    planned.load()
    planned.replica.snapshot["level"] = "linearizable"
    planned.replica.seen.clear()
    planned.planner.load(PlannerRequest(2, "load", table="t", options={"level": "linearizable", "minindex": "6"}))
    (seen,) = planned.replica.seen
    assert (seen.query["level"], seen.query["tag"], seen.query["min_index"]) == ("linearizable", "one", "7")


def test_loads_of_one_query_share_an_answer_and_the_description_goes_to_the_jvm_once(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "NEWEST_S", 3600.0)
    planned.show(7, "one")
    first = planned.planner.load(LOAD)
    planned.replica.seen.clear()
    assert planned.planner.load(LOAD) == first
    known = PlannerRequest(2, "load", table="t", known=first["handle"])
    assert planned.planner.load(known) == {"handle": first["handle"]}
    assert planned.replica.seen == []


@pytest.mark.parametrize(
    "asked",
    [{"level": "sequential"}, {"level": "linearizable"}, {"minindex": "7"}],
    ids=["sequential", "linearizable", "min_index"],
)
def test_load_that_promises_more_than_eventual_asks_though_a_load_has_just_asked(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    monkeypatch.setattr(planner, "NEWEST_S", 3600.0)
    planned.show(7, "one")
    planned.planner.load(LOAD)
    planned.show(8, "two")
    planned.replica.snapshot["level"] = asked.get("level", "eventual")
    assert planned.planner.load(PlannerRequest(2, "load", table="t", options=asked))["index"] == 8


@pytest.mark.parametrize("noted", [(7, -1), (-1, 7), (-1, 6)])
def test_load_after_a_job_of_the_application_has_written_asks(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, noted: tuple[int, int]
) -> None:
    monkeypatch.setattr(planner, "NEWEST_S", 3600.0)
    planned.show(7, "one")
    first = planned.planner.load(LOAD)
    monkeypatch.setattr(written, "last_written", lambda *_: noted)
    planned.show(8, "two")
    assert (first["index"], planned.planner.load(LOAD)["index"]) == (7, 8)


def test_executors_of_a_cluster_get_urls_and_not_paths_and_no_url_has_the_token(
    planned: Planned, tmp_path: Path
) -> None:
    definition = define_table("t", "k bigint not null, v double", order_by="k")
    rows = pa.table({"k": [1, 2], "v": [0.5, None]}, schema=definition.arrow_schema)
    (manifest,) = stage_table(rows, definition, tmp_path / "staged", sync=False)
    part = SnapshotPart("all_3_3_0", "/somewhere/parts/all_3_3_0", manifest)
    planned.show(7, "one")
    planned.replica.snapshot["parts"] = [msgspec.to_builtins(part)]
    answer = Planner(CatalogSettings(url="zk://nowhere:1/replitree", master="spark://127.0.0.1:7077"))
    loaded = answer.load(LOAD)
    assert loaded["other_way"] == ""
    options = loaded["read_options"]
    ticket = read_ticket(options["fs.replitree.secret"], TOKEN.encode())
    assert ticket is not None
    assert (ticket.table, ticket.reads, ticket.upload) == ("t", True, "")
    assert options["fs.replitree.addresses"] == planned.replica.address
    assert options["fs.replitree.folder"] == "/somewhere/parts"
    (file,) = manifest.files
    url = f"replitree://parts/t/all_3_3_0/{file.bytes}-{file.checksum}/data-0.parquet"
    assert answer.files(loaded["handle"], "k = 1") == [(url, file.bytes, 0, "all_3_3_0", -1)]
    assert answer.files(loaded["handle"], "k = 3") == [], "parts are pruned"
    assert TOKEN not in url + str(options)


def test_options_of_the_source_name_a_load_unless_tasks_in_python_read_or_refuse(planned: Planned) -> None:
    planned.show(7, "one")
    named = {"path": "t", "URL": "zk://nowhere:1/replitree"}
    answer = planned.planner.named(named | {"columns": "v"})
    assert answer is not None
    assert (answer["table"], answer["index"], answer["table_id"]) == ("t", 7, planned.load()[0]["table_id"])
    assert [field["name"] for field in msgspec.json.decode(answer["schema"])["fields"]] == ["v"]
    others = [{"where": "k = 1"}, {"replica": "r1"}, {"partitions": "2"}, {"lease": "9"}, {"through": "replica"}]
    others += [{"tokenFile": "elsewhere"}, {"colums": "v"}, {"columns": "x"}, {"final": "perhaps"}, {"asOf": "-1"}]
    for options in [*others, {"table": "nowhere"}]:
        assert planned.planner.named(named | options) is None, options
