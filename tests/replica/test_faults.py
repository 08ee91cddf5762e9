"""What a replica does when the world misbehaves: sessions end, disks fill, files rot, formats are newer."""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from typing_extensions import override

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import Event, Listener, SessionLost
from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Commit, Create, Procedure, Set
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import puller
from replitree.protocol.state.pull import Fenced, Loaded, load
from replitree.replica.parts.orphans import Orphans
from replitree.replica.perform.availability import State
from replitree.replica.table.activation import Activation
from replitree.storage.parts.encode import stage_table
from tests.replica.inprocess import SCHEMA, InProcessCluster, Node, as_stream, rows, wait_for


def insert_until_taken(node: Node, table: pa.Table, token: str) -> None:
    """Insert as a patient client does: repeat with the same token until there is an answer."""
    wait_for(lambda: node.insert(table, token=token)[0] == 200, f"{node.name} takes inserts again")


def test_a_lost_session_costs_an_epoch_and_no_row(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    assert first.insert(rows(0))[0] == 200
    epoch = first.table().availability.active_epoch()
    assert epoch is not None
    cluster.shared.expire(first.coordination.session_id)
    wait_for(lambda: (first.table().availability.active_epoch() or 0) > epoch, "active under a new epoch")
    insert_until_taken(first, rows(10), "after")
    cluster.wait_equal(list(range(20)))


def test_a_cut_connection_is_survived(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    second.coordination.suspend()
    assert first.insert(rows(0))[0] == 200
    second.coordination.resume()
    cluster.wait_equal(list(range(10)))


def test_a_defect_in_pulling_or_activating_is_told_and_survived(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = cluster.nodes
    failed: list[str] = []

    def failing_once(module: ModuleType | type, name: str) -> None:
        real = getattr(module, name)

        def fail(*arguments: Any, **options: Any) -> Any:
            if name not in failed:
                failed.append(name)
                raise AssertionError("a defect")
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, fail)

    failing_once(puller, "pull_log")
    failing_once(Activation, "activate")
    for number in (0, 10):
        insert_until_taken(first, rows(number), f"insert {number}")
    cluster.wait_equal(list(range(20)))
    cluster.shared.expire(second.coordination.session_id)
    wait_for(lambda: len(failed) == 2, "the second activation failed")
    wait_for(lambda: second.table().availability.state is State.ACTIVE, "active again")
    assert failed == ["pull_log", "activate"]
    told = [record.message for record in caplog.records if record.exc_info]
    assert told == ["pulling failed", "activation failed"]


def test_a_reload_that_coordination_cut_off_is_done_again(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.nodes[0]
    tries = list[str]()

    def load_again(replica: Replica) -> Procedure[Loaded | Fenced]:
        if replica.name == first.name:
            tries.append(replica.name)
            if len(tries) == 1:
                raise CoordinationUnavailable("no answer")
        return load(replica)

    monkeypatch.setattr(puller, "load", load_again)
    first.table().context.pull_signal.reload()
    wait_for(lambda: len(tries) > 1, "it is loaded again")
    assert first.table().availability.state is State.ACTIVE


def test_a_full_disk_makes_the_replica_read_only_until_there_is_room(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.nodes
    assert first.insert(rows(0))[0] == 200
    with monkeypatch.context() as full:
        full.setattr(first.table().store, "free_bytes", lambda: 0)
        wait_for(lambda: first.table().availability.state is State.READ_ONLY, "read-only")
        status, body = first.insert(rows(10))
        assert (status, body["error"]) == (503, "ReadOnly")
        wait_for(lambda: "disk full" in first.table().status()["reason"], "the reason is named")  # type: ignore[operator]
        assert first.request("GET", "/health")[0] == 503
        assert first.keys() == list(range(10))
        assert second.insert(rows(10))[0] == 200
    insert_until_taken(first, rows(20), "room again")
    cluster.wait_equal(list(range(30)))


def test_a_disk_that_fills_while_staging_inserts_nothing(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.nodes[0]
    store = first.table().store
    with monkeypatch.context() as full:
        full.setattr(store, "staging_prefix", lambda staging: f"no/such/folder/{staging}@")
        status, body = first.insert(rows(0), token="x")
        assert (status, body["error"]) == (503, "ReadOnly")
        assert "nothing was inserted" in body["message"]
    insert_until_taken(first, rows(0), "x")
    cluster.wait_equal(list(range(10)))


def test_a_rotten_part_is_found_by_its_reader_and_fetched_again(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert first.insert(rows(0, 1000))[0] == 200
    cluster.wait_equal(list(range(1000)))
    part = second.table().progress.visible()[1][0]
    file = second.table().store.file_path(part, "data-0.parquet")
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(bytes(content))
    status, body = second.request("POST", f"/v1/tables/t/parts/{part}/check")
    assert (status, body["whole"]) == (200, False)
    assert second.table().store.detached() == (f"broken_{part}_0",)
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert second.keys() == list(range(1000))
    assert second.request("POST", f"/v1/tables/t/parts/{part}/check")[1]["whole"] is True


def test_a_source_that_sends_damaged_bytes_is_told_and_heals(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    second.coordination.suspend()
    assert first.insert(rows(0, 1000))[0] == 200
    wait_for(lambda: first.table().progress.visible_count() == 1, "visible on r1")
    file = first.table().store.file_path("all_0_0_0", "data-0.parquet")
    sound = file.read_bytes()
    file.write_bytes(bytes([sound[0], sound[1], *[byte ^ 255 for byte in sound[2:50]], *sound[50:]]))
    second.coordination.resume()
    wait_for(first.table().store.detached, "r1 set the damaged part aside")
    assert second.keys() == []
    assert first.table().status()["lacking"] == ["all_0_0_0"]


def test_an_entry_of_a_newer_format_stops_the_replica_and_loses_nothing(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    assert first.insert(rows(0))[0] == 200
    cluster.wait_equal(list(range(10)))
    table = first.table().replica.table
    cluster.admin.perform(Commit(Create(layout.log_create(table), b'{"kind":"teleport","format":7}', sequential=True)))
    wait_for(lambda: all(node.table().availability.state is State.HALTED for node in cluster.nodes), "halted")
    reason = str(first.table().status()["reason"])
    assert "teleport" in reason
    assert "Upgrade" in reason
    assert first.keys() == list(range(10))
    assert first.insert(rows(10))[1]["error"] == "ReadOnly"


def test_a_process_that_was_replaced_stops(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    replica = first.table().replica
    node = cluster.admin.perform(Commit(Set(layout.host(replica), b'{"somebody":"else"}', -1)))
    assert node is not None
    status, body = first.insert(rows(0))
    assert (status, body["error"]) == (503, "ReadOnly")
    wait_for(lambda: first.table().availability.state is State.STOPPED, "stopped")
    assert "another process took over" in str(first.table().status()["reason"])


def test_an_upload_becomes_one_insert_on_every_replica(cluster: InProcessCluster, tmp_path: Path) -> None:
    first, second = cluster.nodes
    definition = first.table().definition
    (tmp_path / "mine").mkdir()
    manifests = stage_table(rows(0, 5000), definition, tmp_path / "mine" / "up")
    opened = first.request("POST", "/v1/tables/t/uploads")[1]
    for manifest in manifests:
        for file in manifest.files:
            body = (tmp_path / "mine" / "up" / manifest.partition / file.name).read_bytes()
            path = f"/v1/tables/t/uploads/{opened['upload']}/{manifest.partition}/{file.name}"
            assert first.request("PUT", f"{path}?checksum={'0' * 32}", body)[0] == 400
            assert first.request("PUT", f"{path}?checksum={file.checksum}", body)[0] == 200
    commit = b'{"manifests":[' + b",".join(manifest.encode() for manifest in manifests) + b"]}"
    path = f"/v1/tables/t/uploads/{opened['upload']}/commit?token=up"
    assert first.request("POST", path, commit)[1] == {"outcome": "inserted", "index": 0, "rows": 5000}
    assert first.request("POST", path, commit)[1] == {"outcome": "inserted", "index": 0, "rows": 5000}
    assert second.insert(rows(0), token="up")[1] == {
        "outcome": "duplicate",
        "index": 0,
        "rows": 10,
        "differs": True,  # the token was used for other rows
    }
    cluster.wait_equal(list(range(5000)))


def test_an_upload_that_differs_from_its_manifest_is_refused(cluster: InProcessCluster, tmp_path: Path) -> None:
    first = cluster.nodes[0]
    opened = first.request("POST", "/v1/tables/t/uploads")[1]
    folder = Path(opened["path"])
    manifests = stage_table(rows(0, 100), first.table().definition, folder / "x")
    (folder / "x" / "all").rename(folder / "all")
    (folder / "x").rmdir()
    (folder / "all" / "data-0.parquet").write_bytes(b"something else")
    commit = b'{"manifests":[' + manifests[0].encode() + b"]}"
    status, body = first.request("POST", f"/v1/tables/t/uploads/{opened['upload']}/commit", commit)
    assert (status, body["error"]) == (410, "CorruptPart")
    (folder / "extra").mkdir()
    assert first.request("POST", f"/v1/tables/t/uploads/{opened['upload']}/commit", commit)[1]["error"] == "BadInput"
    assert first.request("DELETE", f"/v1/tables/t/uploads/{opened['upload']}")[0] == 200
    assert not folder.exists()


def test_large_parts_are_fetched_in_ranges_and_resumed(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replitree.replica.http.http_exchange.BUNDLE_INLINE_BYTES", 1000)
    monkeypatch.setattr("replitree.replica.perform.exchange.RANGE_BYTES", 4096)
    first, second = cluster.nodes
    exchange = second.table().exchange
    ranges: list[int] = []
    fetch_range = exchange._fetch_range  # noqa: SLF001

    def failing(*arguments: object) -> None:
        ranges.append(arguments[3])  # type: ignore[arg-type]
        if ranges.count(4096) == 1 and arguments[3] == 4096:
            raise ConnectionError("cut")
        fetch_range(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(exchange, "_fetch_range", failing)
    assert first.insert(rows(0, 20_000))[0] == 200
    cluster.wait_equal(list(range(20_000)))
    assert ranges.count(4096) == 2
    assert first.table().status()["rows"] == second.table().status()["rows"] == 20_000


def test_a_dropped_table_leaves_no_trace_and_its_name_is_free(cluster: InProcessCluster) -> None:
    from replitree.protocol.core.effects import Exists
    from replitree.protocol.membership.table import TableOutcome, mark_dropped, remove_table

    first = cluster.nodes[0]
    assert first.insert(rows(0))[0] == 200
    table, root = first.table().replica.table, first.table().store.root
    assert cluster.run(mark_dropped(table)) is TableOutcome.DONE
    wait_for(lambda: cluster.run(remove_table(table)) is TableOutcome.DONE, "removed")
    wait_for(lambda: not root.exists(), "local data gone")
    assert cluster.admin.perform(Exists(table.path)) is False
    assert first.insert(rows(0))[1]["error"] == "TableNotFound"
    cluster.create_table(schema=SCHEMA)
    assert first.insert(rows(0))[1] == {"outcome": "inserted", "index": 0, "rows": 10}


def test_rows_after_a_restart_come_from_disk_and_staging_is_swept(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    assert first.request("POST", "/v1/tables/t/insert", as_stream(rows(0)))[0] == 200
    cluster.wait_equal(list(range(10)))
    garbage = first.table().store.staged_path("dead-0.0", "all")
    garbage.mkdir()
    assert first.server is not None
    first.server.stop(5.0)
    first.coordination = type(first.coordination)(cluster.shared)
    first.start()
    wait_for(lambda: cluster.is_active(first), "active again")
    assert first.keys() == list(range(10))
    assert not garbage.exists()


def test_a_begun_fetch_of_what_is_here_already_is_abandoned(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    index = first.insert(rows(0))[1]["index"]
    cluster.wait_equal(list(range(10)))
    store, progress = first.table().store, first.table().progress
    store.fetched.begin(f"all_{index}_{index}_0")
    store.fetched.begin("all_900_900_0")  # may still be on its way
    orphans = Orphans(first.table().local_parts)
    assert orphans.look() == ()
    assert len(store.fetches()) == 2
    orphans.look()
    assert store.fetches() == ("all_900_900_0",)
    assert progress.queue() == ()
    assert first.keys() == list(range(10))


class LostAtOnce(MemoryCoordination):
    """A session that begins anew, and has been lost before whoever began it goes on."""

    def __init__(self, shared: SharedTree) -> None:
        super().__init__(shared)
        self.times = 2
        self._told = threading.Semaphore(0)

    @override
    def add_listener(self, listener: Listener) -> None:
        def hear(event: Event) -> None:
            listener(event)
            if isinstance(event, SessionLost):
                self._told.release()

        super().add_listener(hear)

    @override
    def reconnect(self) -> None:
        super().reconnect()
        if self.times:
            self.times -= 1
            while self._told.acquire(blocking=False):
                pass
            self.shared.expire(self.session_id)
            assert self._told.acquire(timeout=10.0)


def test_session_that_is_lost_as_soon_as_it_has_begun_is_begun_anew(tmp_path: Path) -> None:
    shared, sessions = SharedTree(), list[LostAtOnce]()

    def connect() -> MemoryCoordination:
        sessions.append(LostAtOnce(shared))
        return sessions[-1]

    cluster = InProcessCluster(tmp_path, 1, connect)
    try:
        cluster.create_table()
        (served,) = [each for each in sessions if each is not cluster.admin]
        shared.expire(served.session_id)
        wait_for(lambda: not served.times, "it was lost twice more")
        insert_until_taken(cluster.nodes[0], rows(0), "after")
    finally:
        cluster.close()
