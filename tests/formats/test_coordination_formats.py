"""What logs, queues and the small nodes beside them hold stays readable: every kind of entry, every kind of value."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from replitree.errors import UnsupportedFormat
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    FORMATS,
    AlterEntry,
    BlockValue,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
    Unchanged,
    ViewEntry,
    decode_block,
    decode_entry,
    dropped_partitions,
    encode_block,
    encode_entry,
)
from replitree.protocol.core.fold import Change, apply
from replitree.protocol.core.joint_tokens import (
    JointValue,
    ShardInsert,
    TokenValue,
    decode_joint,
    decode_token,
    encode_token,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log, log_start
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.core.streams import NO_BATCH, StreamBatch, StreamValue, decode_stream, encode_stream
from replitree.protocol.core.views import Feeding, ViewsValue, ViewValue, decode_views, encode_views
from replitree.protocol.execute.drop import execute_drop
from replitree.protocol.execute.mutate import kill_mutation
from replitree.protocol.sharded.cut import name_ensemble
from replitree.protocol.state.counted import QuorumValue, decode_quorum, encode_quorum
from replitree.protocol.state.pull import Place, Pointer, Queued, pull_log, read_pointer
from replitree.protocol.state.registration import View, broken_value, content_of, is_broken, register
from replitree.protocol.upkeep.consumers import ConsumerValue, decode_consumer, encode_consumer
from replitree.protocol.upkeep.tags import TagValue, decode_tag, encode_tag
from replitree.wire.identity import Identity, decode_identity

FROZEN = Path(__file__).parent / "coordination"

HASH = "0123456789abcdef0123456789abcdef"
COMMAND = fx.EntryId("00112233445566778899aabbccddeeff")
PARTS = (fx.StagedPart("2024-01", 3, 1000, HASH), fx.StagedPart("2024-02", 2**40, 2**50, HASH[::-1]))

ENTRIES: dict[str, Entry] = {
    "get-1": GetEntry("r1", fx.StagingId("s1"), PARTS, (fx.BlockId("t-1"), fx.BlockId("c-2")), 3),
    "get-2-partitions": GetEntry("r1", fx.StagingId("s2"), PARTS, (), 1, 2, ("2024-01", "2024-02")),
    "get-2-all": GetEntry("r-2", fx.StagingId("s3"), PARTS[:1], (fx.BlockId("t-2"),), 1, 2, (EVERY_PARTITION,)),
    "get-3": GetEntry("r1", fx.StagingId("s4"), PARTS, (fx.BlockId("t-3"),), 1, 3, quorum=2),
    "get-4": GetEntry(
        "r1", fx.StagingId("s7"), PARTS, (), 1, 4, stream=StreamBatch(fx.StreamId("etl/orders"), "7f0c", 2**40)
    ),
    "get-4-quorum": GetEntry(
        "r1", fx.StagingId("s8"), PARTS, (), 1, 4, quorum=2, stream=StreamBatch(fx.StreamId("orders"), "", 0)
    ),
    "get-4-all": GetEntry(
        *("r1", fx.StagingId("s9"), PARTS, (), 1, 4, (EVERY_PARTITION,)),
        stream=StreamBatch(fx.StreamId("orders"), "7f0c", 3),
    ),
    "get-5": GetEntry("r1", fx.StagingId("s10"), PARTS, (), 3, 5, joint=fx.JointId("7f0c"), shards=64),
    "settle-1": SettleEntry("r2", fx.StagingId("s4"), 2**40, ("r1", "r2")),
    "fail-1": FailEntry("r1", fx.StagingId("s4"), 7, ("2024-01", "2024-02")),
    "merge-1": MergeEntry("r1", ("2024-01_0_0_0", "2024-01_1_4_2_3"), 2),
    "mutate-1": MutateEntry("r1", COMMAND, "2024-01", '{"format":1,"kind":"delete","where":"k = \'größe\'"}', 2),
    "mutate-1-all": MutateEntry("r1", COMMAND, EVERY_PARTITION, '{"format":1,"kind":"delete","where":"true"}'),
    "mutate-2": MutateEntry(
        "r1",
        COMMAND,
        EVERY_PARTITION,
        '{"format":1,"kind":"delete","where":"k = 1"}',
        2,
        2,
        ("2024-01", "2024-02"),
        2**40,
    ),
    "mutate-2-nothing": MutateEntry(
        "r1", COMMAND, EVERY_PARTITION, '{"format":1,"kind":"delete","where":"k = 1"}', 2, 2, (), 7
    ),
    "rewrite-1": RewriteEntry(
        "r1",
        COMMAND,
        fx.StagingId("s5"),
        (fx.StagedResult("2024-01_1_4_2_3", 3, 1000, HASH), fx.StagedResult("2024-02_3_3_0", 0, 2**50, HASH[::-1])),
        PARTS,
        3,
    ),
    "rewrite-1-relying": RewriteEntry(
        "r1",
        COMMAND,
        fx.StagingId("s6"),
        (fx.StagedResult("2024-01_0_0_0", 3, 1000, HASH),),
        unchanged=Unchanged(("2024-01", EVERY_PARTITION), 2**40, (7, 9)),
    ),
    "drop-1": DropEntry("r1", COMMAND, "2024-01"),
    "drop-1-blocks": DropEntry("r1", COMMAND, EVERY_PARTITION, 3, 2**40),
    "drop-1-detach": DropEntry("r1", COMMAND, "2024-02", detach=True),
    "alter-1": AlterEntry("r1", COMMAND, '{"changes":[{"do":"drop column","name":"v"}],"format":1}', 4),
    "storage-1": StorageEntry(
        "r1", COMMAND, "tiered(s3://lake/tables?endpoint=https://store:8333, older=7d, free=100GB)"
    ),
    "storage-2": StorageEntry("r1", COMMAND, "local", 2, "7d"),
    "storage-2-default": StorageEntry("r1", COMMAND, "local", 2, ""),
    "view-1": ViewEntry("r1", COMMAND, "per_day", "days", command='{"format":1,"select":["day"]}'),
    "view-1-ends": ViewEntry("r1", COMMAND, "per_day", "days"),
    "lost-1": LostEntry("r1", "2024-01_1_4_2_3", HASH, 2),
    "roll-1": RollEntry("r1"),
}
"""Every kind, in every format and with every field."""

REPLICA = Replica(TablePlace("/replitree/tables/t"), "r1")


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_in_the_log(name: str) -> None:
    frozen = (FROZEN / f"entry-{name}.json").read_bytes()
    assert decode_entry(frozen, "here") == ENTRIES[name]
    assert encode_entry(ENTRIES[name]) == frozen


def test_every_kind_of_entry_is_frozen_in_every_format() -> None:
    frozen = {(kind, int(number)) for kind, number, *_ in (name.split("-") for name in ENTRIES)}
    known = {(kind, number) for kind, newest in FORMATS.items() for number in range(1, newest + 1)}
    assert frozen == known


def test_overwrite_is_not_read_as_a_plain_insert() -> None:
    """A replica that does not know format 2 stops before it; it would keep what the others drop."""
    plain, overwrite = ENTRIES["get-1"], ENTRIES["get-2-all"]
    assert isinstance(plain, GetEntry)
    assert isinstance(overwrite, GetEntry)
    assert (plain.format, dropped_partitions(plain)) == (1, ())
    assert (overwrite.format, dropped_partitions(overwrite)) == (2, (EVERY_PARTITION,))
    assert b"drops" not in encode_entry(plain)


def test_mutation_with_a_scope_is_not_read_as_one_of_all_parts() -> None:
    """A replica that does not know format 2 stops before it; it would mutate parts that the others leave as they are."""
    for name in ("mutate-1", "mutate-1-all"):
        assert b"partitions" not in encode_entry(ENTRIES[name])
    for name in ("mutate-2", "mutate-2-nothing"):
        entry = ENTRIES[name]
        assert isinstance(entry, MutateEntry)
        assert (entry.format, entry.partition) == (2, EVERY_PARTITION)


@pytest.mark.parametrize("kind", FORMATS)
def test_newer_format_of_a_kind_is_refused(kind: str) -> None:
    newer = f'{{"kind":"{kind}","format":{FORMATS[kind] + 1},"what":"nobody knows"}}'.encode()
    with pytest.raises(
        UnsupportedFormat,
        match=f"log-7 has kind '{kind}' in format {FORMATS[kind] + 1}.*Upgrade this replica; it stopped",
    ):
        decode_entry(newer, "log-7")


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b'{"kind":"get","format":1}', b'{"kind":"get"}', b"\xff"])
def test_what_is_no_entry_is_refused(raw: bytes) -> None:
    with pytest.raises(UnsupportedFormat, match=r"log-7 can't be read .*upgrade this replica or restore the node"):
        decode_entry(raw, "log-7")


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="kind 'bless' in format 1; this replitree knows 'get' up to format 5"):
        decode_entry(b'{"kind":"bless","format":1}', "log-7")


# --- small nodes ------------------------------------------------------------------------------------------------------------


def test_views() -> None:
    view = ViewValue(COMMAND, "per_day", "days", "5f0c", '{"format":1}', is_filled=True)
    value = ViewsValue((view,), (Feeding(COMMAND, "events", "a1"),))
    frozen = (FROZEN / "views-1.json").read_bytes()
    assert (decode_views(frozen, "here"), encode_views(value)) == (value, frozen)
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1"):
        decode_views(b'{"views":[],"feeding":[],"format":2}', "here")


def test_name_of_the_ensemble() -> None:
    frozen, naming = (FROZEN / "ensemble-1.json").read_bytes(), name_ensemble("/c", "5f0c77aa")
    assert naming.send(None) == fx.Get("/c/ensemble")
    assert naming.send(None) == fx.Commit(fx.Create("/c/ensemble", frozen))
    naming.send(fx.Unknown())
    with pytest.raises(StopIteration) as stop:
        naming.send(fx.Node(frozen, fx.Version(0)))
    assert stop.value.value == "5f0c77aa"
    newer = name_ensemble("/c", "0")
    newer.send(None)
    with pytest.raises(UnsupportedFormat, match="format 2"):
        newer.send(fx.Node(frozen.replace(b'"format":1', b'"format":2'), fx.Version(0)))


def test_the_log_of_a_table_with_views_is_refused_by_earlier_versions() -> None:
    place = layout.TablePlace("/t", incarnation="5f0c")
    assert encode_log(place, 7, has_views=True) == b'{"first":7,"format":3}'
    assert log_start(place, fx.Node(encode_log(place, 7, has_views=True), fx.Version(2))).has_views


def test_blocks() -> None:
    value = BlockValue(fx.StagingId("s1"), 41)
    frozen = b'{"insert":"s1","log_from":41,"format":1}'
    assert (decode_block(frozen, "here"), encode_block(value)) == (value, frozen)
    dropped = BlockValue(fx.StagingId("s1"), 41, partitions=("2024-01", "all"), dropped=True)
    with_partitions = b'{"insert":"s1","log_from":41,"format":1,"partitions":["2024-01","all"],"dropped":true}'
    assert (decode_block(with_partitions, "here"), encode_block(dropped)) == (dropped, with_partitions)
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1"):
        decode_block(b'{"insert":"s1","log_from":41,"format":2}', "here")
    with pytest.raises(UnsupportedFormat, match="here can't be read"):
        decode_block(b"41", "here")


def test_identities() -> None:
    value = Identity("10.0.0.1:8181", HASH, "boot/pid:[1]", 4711, 123456)
    frozen = (
        b'{"address":"10.0.0.1:8181","incarnation":"0123456789abcdef0123456789abcdef","machine":"boot/pid:[1]",'
        b'"pid":4711,"started":123456,"format":1}'
    )
    assert (decode_identity(frozen), value.encode()) == (value, frozen)
    assert decode_identity(b"10.0.0.1:8181") is None


def commit_of(procedure: Generator[Any, Any, Any], answer: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Run a procedure up to its first commit; return the operations."""
    effect = next(procedure)
    while not isinstance(effect, fx.Commit):
        effect = procedure.send(answer(effect))
    return effect.operations


@pytest.mark.parametrize(
    "name", sorted(ENTRIES.keys() - {"roll-1"})
)  # after a roll the pointer is below the next parent
def test_queue_nodes_are_the_entries_of_the_log_and_the_pointer_is_a_number(name: str) -> None:
    raw = (FROZEN / f"entry-{name}.json").read_bytes()
    parts = PartSet.of([parse_part("2024-01_0_0_0"), parse_part("2024-01_1_4_2_3"), parse_part("2024-02_3_3_0")])
    place = Place(Pointer(fx.LogIndex(41), fx.Version(7)), parts)
    log = fx.Node(encode_log(REPLICA.table), fx.Version(0))
    answers = iter([fx.Many((fx.Node(raw, fx.Version(0)), log)), False])
    operations = commit_of(pull_log(REPLICA, fx.Epoch(2), place), lambda _: next(answers))
    value = b"42 41" if name in ("get-3", "get-4-quorum") else b"42"
    moved = fx.Set("/replitree/tables/t/replicas/r1/log_pointer", value, 7)
    queued = fx.Create("/replitree/tables/t/replicas/r1/queue/queue-0000000041", raw)
    applies = not apply(parts, fx.LogIndex(41), ENTRIES[name])[1].is_empty
    assert operations[1:] == ((moved, queued) if applies else (moved,))
    changes_nothing = {
        "alter-1",
        "storage-1",
        "storage-2",
        "storage-2-default",
        "view-1",
        "view-1-ends",
        "drop-1-blocks",
        "settle-1",
        "fail-1",
        "mutate-2-nothing",
    }
    assert applies == (name not in changes_nothing)


def test_pointer_is_read() -> None:
    procedure = read_pointer(REPLICA)
    next(procedure)
    with pytest.raises(StopIteration) as ended:
        procedure.send(fx.Node(b"42", fx.Version(7)))
    assert ended.value.value == Pointer(fx.LogIndex(42), fx.Version(7))


def test_registered_parts() -> None:
    part = Part("2024-01", 1, 4, 2, 3)
    path = "/replitree/tables/t/replicas/r1/parts/2024-01_1_4_2_3"
    assert register(REPLICA, part, HASH) == fx.Create(path, HASH.encode())
    assert (content_of(HASH.encode()), is_broken(HASH.encode())) == (HASH, False)
    assert broken_value(HASH) == b"broken " + HASH.encode()
    assert (content_of(broken_value(HASH)), is_broken(broken_value(HASH))) == (HASH, True)


def test_claims_of_results() -> None:
    before, after = parse_part("2024-01_0_0_0"), parse_part("2024-01_0_0_0_9")
    item = Queued(fx.LogIndex(9), ENTRIES["mutate-1"], Change((before,), (after,)))
    operations = commit_of(
        kill_mutation(REPLICA, fx.Epoch(2), item), lambda _: fx.Many((fx.Node(HASH.encode(), fx.Version(0)), None))
    )
    assert operations[1:] == (
        fx.Check("/replitree/tables/t/replicas/r1/parts/2024-01_0_0_0", fx.Version(0)),
        fx.Create("/replitree/tables/t/results/2024-01_0_0_0_9", HASH.encode()),
    )


@pytest.mark.parametrize(
    ("found", "written"),
    [
        (None, fx.Create("/replitree/tables/t/drops/2024-01", b"9")),
        (fx.Node(b"3", fx.Version(5)), fx.Set("/replitree/tables/t/drops/2024-01", b"9", 5)),
        (fx.Node(b"10", fx.Version(5)), None),
    ],
)
def test_notes_of_drops(found: fx.Node | None, written: fx.Create | fx.Set | None) -> None:
    item = Queued(fx.LogIndex(9), ENTRIES["drop-1"], Change((parse_part("2024-01_0_0_0"),), ()))
    answers = iter([(), fx.Many((found,))])
    operations = commit_of(
        execute_drop(REPLICA, fx.Epoch(2), View(PartSet(), PartSet()), item), lambda _: next(answers)
    )
    assert [op for op in operations if isinstance(op, fx.Create | fx.Set)] == ([] if written is None else [written])


def test_who_has_an_open_insert() -> None:
    value, frozen = QuorumValue(2, ("r-1", "r2")), (FROZEN / "quorum-1.json").read_bytes()
    assert decode_quorum(frozen, "here") == value
    assert encode_quorum(value) == frozen
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1; upgrade it"):
        decode_quorum(b'{"quorum":2,"replicas":[],"format":2}', "here")
    with pytest.raises(UnsupportedFormat, match="here can't be read"):
        decode_quorum(b"{}", "here")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("first", StreamValue("7f0c", 0, fx.StagingId("s1"), 2**40)),
        (
            "later",
            StreamValue("", 2**40, fx.StagingId("s3"), 9, 1, 2, StreamValue("7f0c", 4, fx.StagingId("s2"), 7, 1, 3)),
        ),
        ("none", StreamValue("7f0c", NO_BATCH, fx.StagingId("s1"), 0)),
    ],
)
def test_where_a_stream_stands(name: str, value: StreamValue) -> None:
    frozen = (FROZEN / f"stream-1-{name}.json").read_bytes()
    assert decode_stream(frozen, "here") == value
    assert encode_stream(value) == frozen
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1; upgrade it"):
        decode_stream(frozen.replace(b'"format":1', b'"format":2'), "here")
    with pytest.raises(UnsupportedFormat, match="here can't be read"):
        decode_stream(b"{}", "here")


def test_which_joint_insert_has_a_token_and_which_waits_for_its_quorum() -> None:
    written = (
        ShardInsert("orders~0", "5f0c", fx.StagingId("s1"), 0),
        ShardInsert("orders~1", "5f0d", fx.StagingId("s2.1"), 2**40),
    )
    value = TokenValue(fx.JointId("7f0c"), written)
    frozen = (FROZEN / "token-1.json").read_bytes()
    assert decode_token(frozen, "here") == value
    assert encode_token(value) == frozen
    with pytest.raises(UnsupportedFormat, match="format 2"):
        decode_token(frozen.replace(b'"format":1', b'"format":2'), "here")
    with pytest.raises(UnsupportedFormat, match="can't be read"):
        decode_token(b"{}", "here")
    waiting, frozen = JointValue(fx.BlockId("t-1"), written), (FROZEN / "joint-1.json").read_bytes()
    assert decode_joint(frozen, "here") == waiting
    assert encode_token(waiting) == frozen


def test_pointer_names_the_open_inserts() -> None:
    assert layout.pointer_value(41) == b"41"
    assert layout.pointer_value(41, (fx.LogIndex(38), fx.LogIndex(2**40))) == b"41 38,1099511627776"
    assert layout.pointer_open(b"41 38,1099511627776") == (38, 2**40)


TAG = TagValue(2**40, COMMAND, "r1", ("2024-01_1_4_2_3", "2024-02_3_3_0"), 7, 2**50)


def test_tags() -> None:
    frozen = (FROZEN / "tag-1.json").read_bytes()
    assert decode_tag(frozen, "here") == TAG
    assert encode_tag(TAG) == frozen
    with pytest.raises(UnsupportedFormat, match="tags/x has format 2"):
        decode_tag(frozen.replace(b'"format":1', b'"format":2'), "tags/x")
    with pytest.raises(UnsupportedFormat, match="tags/x can't be read"):
        decode_tag(b"{}", "tags/x")


CONSUMERS = {
    "consumer-1": ConsumerValue(2**40, COMMAND, "r1", 129600.0, 2**50),
    "consumer-1-snapshot": ConsumerValue(7, COMMAND, "r1", snapshot=7, parts=("2024-01_1_4_2_3", "2024-02_3_3_0")),
    "consumer-1-expired": ConsumerValue(7, COMMAND, "r1", expired="it had not moved from 7"),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_consumers(name: str) -> None:
    frozen = (FROZEN / f"{name}.json").read_bytes()
    assert decode_consumer(frozen, "here") == CONSUMERS[name]
    assert encode_consumer(CONSUMERS[name]) == frozen
    with pytest.raises(UnsupportedFormat, match="consumers/x has format 2"):
        decode_consumer(frozen.replace(b'"format":1', b'"format":2'), "consumers/x")
