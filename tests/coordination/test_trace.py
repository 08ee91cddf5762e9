"""What a process writes down of its commits: every one, without rows and secrets, in the order of coordination."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from kazoo.client import KazooClient

from replitree.coordination.embedded import EmbeddedZooKeeper
from replitree.coordination.trace import CommitEnded, CommitSent, CommitTrace, Line
from replitree.coordination.trace_hiding import hide_partition, hide_path, hide_value
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import StoreError
from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import DropEntry, GetEntry, LostEntry, MergeEntry, MutateEntry, encode_entry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.membership.table import DROPPED_HOST

TABLE = TablePlace("/replitree/tables/t")
GET = GetEntry("r1", fx.StagingId("s-1"), (fx.StagedPart("smith", 3, 99, "0123"),), ())


def lines(trace: CommitTrace) -> list[str]:
    return trace.file.read_text().splitlines()


def test_a_trace_has_the_bytes_that_it_always_had(tmp_path: Path) -> None:
    trace = CommitTrace(tmp_path / "deep" / "folder", "r1")
    trace.seen = lambda: 8
    operations = (
        fx.Check("/t/replicas/r1/host", 3),
        fx.Create("/t/log/log-", b"{}", sequential=True),
        fx.Create("/t/replicas/r1/is_active", b"secret", ephemeral=True),
        fx.Set("/t/replicas/r1/log_pointer", b"4 1,2", 7),
        fx.Delete("/t/replicas/r1/queue/queue-0000000003", -1),
    )
    assert [trace.sent(5, operations), trace.sent(5, operations[:1]), trace.sent(5, operations[:1])] == [0, 1, 2]
    trace.ended(0, fx.Applied(("/t/log/log-0000000004",)), 7)
    trace.ended(2, fx.Unknown(), 0)
    trace.ended(1, fx.Refused(operations[0], fx.Reason.BAD_VERSION), 8)
    trace.told("/t", fx.Inserted(fx.LogIndex(4), fx.LogIndex(6)))
    trace.told("/t", fx.Duplicate(fx.LogIndex(4)))
    trace.told("/t", fx.Duplicate(None))
    trace.told("/t", fx.NotInserted("full"))
    trace.close()
    check = '{"do":"check","path":"/t/replicas/r1/host","version":3}'
    assert lines(trace) == [
        '{"kind":"head","replica":"r1","format":1}',
        (
            f'{{"kind":"sent","number":0,"session":5,"steps":[{check},'
            '{"do":"create","path":"/t/log/log-","value":"{}","sequential":true},'
            '{"do":"create","path":"/t/replicas/r1/is_active","ephemeral":true},'
            '{"do":"set","path":"/t/replicas/r1/log_pointer","value":"4 1,2","version":7},'
            '{"do":"delete","path":"/t/replicas/r1/queue/queue-0000000003"}]}'
        ),
        f'{{"kind":"sent","number":1,"session":5,"steps":[{check}]}}',
        f'{{"kind":"sent","number":2,"session":5,"steps":[{check}]}}',
        '{"kind":"ended","number":0,"outcome":"applied","zxid":7,"created":["/t/log/log-0000000004"]}',
        '{"kind":"ended","number":2,"outcome":"unknown"}',
        '{"kind":"ended","number":1,"outcome":"refused","zxid":8}',
        '{"kind":"told","table":"/t","zxid":8,"index":4,"settled":6}',
        '{"kind":"told","table":"/t","zxid":8,"index":4}',
    ]
    decoded = [msgspec.json.decode(line, type=Line) for line in lines(trace)]
    assert isinstance(decoded[1], CommitSent)
    shown = (*operations[:2], fx.Create(operations[2].path, ephemeral=True), *operations[3:])
    assert tuple(step.operation() for step in decoded[1].steps) == shown


@pytest.mark.parametrize(
    "entry",
    [
        GET,
        GetEntry("r1", fx.StagingId("s"), (), (), drops=("smith",)),
        MergeEntry("r1", ("smith_0_0_0", "smith_1_1_0")),
        MutateEntry("r1", fx.EntryId("m"), "smith", "name = 'smith'"),
        DropEntry("r1", fx.EntryId("d"), "smith"),
        LostEntry("r1", "smith_0_0_0", "0123"),
    ],
)
def test_no_value_of_a_row_is_in_an_entry(entry: GetEntry | MergeEntry) -> None:
    raw = encode_entry(entry)
    assert b"smith" in raw
    hidden = hide_value("/t/log/log-", raw)
    assert "smith" not in hidden
    assert "0123" not in hidden
    assert f'"kind":"{entry.__struct_config__.tag}"' in hidden
    assert '"later_field"' not in hide_value("/t/log/log-", raw[:-1] + b',"later_field":"smith"}')


def test_no_value_of_a_row_is_in_a_path_and_equal_ones_stay_equal() -> None:
    hidden = hide_partition("smith")
    assert hide_path("/t/replicas/r1/parts/smith_0_4_1_7") == f"/t/replicas/r1/parts/{hidden}_0_4_1_7"
    assert hide_path("/t/results/smith_0_4_1") == f"/t/results/{hidden}_0_4_1"
    assert hide_path("/t/drops/smith") == f"/t/drops/{hidden}"
    assert hide_path("/t/replicas/r1/parts/nonsense") == f"/t/replicas/r1/parts/{hide_partition('nonsense')}"
    assert hide_path("/t/blocks/abc") == "/t/blocks/abc"


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("/t/replicas/r1/is_lost", b"1 half-built", "1 half-built"),
        ("/t/log", b'{"first":4,"format":1}', '{"first":4,"format":1}'),
        ("/t/quorum/status/s-1", b'{"quorum":2}', '{"quorum":2}'),
        ("/t/replicas/r1/host", DROPPED_HOST, DROPPED_HOST.decode()),
        ("/t/replicas/r1/host", b"10.0.0.1:9000", ""),
        ("/t/replicas/r1/parts/all_0_0_0", b"0123", ""),
        ("/t/metadata", b"columns", ""),
        ("/t/log/log-", b"not of this version", ""),
        ("/t/log/log-", b'{"kind":"get","parts":7}', ""),
    ],
)
def test_only_values_that_say_where_a_replica_stands_are_shown(path: str, value: bytes, shown: str) -> None:
    assert hide_value(path, value) == shown


def test_a_trace_ends_when_it_is_too_large_and_the_process_goes_on(tmp_path: Path) -> None:
    trace = CommitTrace(tmp_path, "r1", bytes_max=400)
    for _ in range(10):
        trace.ended(trace.sent(1, (fx.Check("/t", 0),)), fx.Unknown(), 0)
    assert trace.is_over
    assert 400 <= trace.file.stat().st_size < 600
    assert trace.sent(1, (fx.Check("/t", 0),)) == 10


def test_a_folder_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="change `trace`"):
        CommitTrace(tmp_path / "file", "r1")


@pytest.mark.system
def test_the_number_of_an_answer_is_that_of_its_own_commit(
    zookeeper: EmbeddedZooKeeper, make_root_path: Callable[[], str], tmp_path: Path
) -> None:
    """Also while others commit: by these numbers the traces of all processes are put into one order."""
    root = make_root_path()
    traces = [CommitTrace(tmp_path, f"r{number}") for number in range(3)]
    sessions = [ZooKeeperCoordination(f"zk://127.0.0.1:{zookeeper.ports[0]}/", trace=trace) for trace in traces]
    assert isinstance(sessions[0].perform(fx.Commit(fx.Create(root))), fx.Applied)

    def work(number: int) -> None:
        for each in range(40):
            sessions[number % 3].perform(
                fx.Commit(fx.Create(f"{root}/n-", sequential=True), fx.Create(f"{root}/{number}-{each}"))
            )
            sessions[number % 3].perform(fx.Commit(fx.Check(f"{root}/nowhere", 1)))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert all(trace.seen() > 0 for trace in traces)
    for session in sessions:
        session.close()
    ended = [each for trace in traces for line in lines(trace)[1:] if isinstance(each := decoded(line), CommitEnded)]
    assert len({each.zxid for each in ended}) == len(ended) == 481
    client = KazooClient(f"127.0.0.1:{zookeeper.ports[0]}")
    client.start()
    try:
        made = {path: each.zxid for each in ended for path in each.created}
        assert len(made) == 481
        assert {path: client.exists(path).czxid for path in made} == made
    finally:
        client.stop()
        client.close()


def decoded(line: str) -> Line:
    found: Line = msgspec.json.decode(line, type=Line)
    return found
