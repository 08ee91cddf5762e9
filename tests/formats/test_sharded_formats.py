"""What the nodes of sharded tables hold stays readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replitree.errors import UnsupportedFormat
from replitree.protocol.core import effects as fx
from replitree.protocol.rescue.restore_sharded import RestoredShard, Standing, decode_restored, encode_restored
from replitree.protocol.sharded.default_sharding import DefaultSharding, decode_default, encode_default
from replitree.protocol.sharded.life import DROPPING, MADE, Life, decode_life, encode_life
from replitree.protocol.sharded.moves.progress import Batch, MovesProgress, decode_progress, encode_progress
from replitree.protocol.sharded.placement import Placement, decode_placement, encode_placement
from replitree.protocol.sharded.shard_map import (
    Shard,
    decode_map,
    encode_map,
    first_map,
    moving,
    rebalanced,
    with_views,
    without_shard,
)
from replitree.protocol.upkeep.cut_consumers import CUT_CONSUMERS, CutConsumerValue
from replitree.protocol.upkeep.cut_tags import CUT_TAGS, CutTagValue
from replitree.protocol.upkeep.named_cuts import KeptShard, NamedCuts

FROZEN = Path(__file__).parent / "coordination"

COMMAND = fx.EntryId("00112233445566778899aabbccddeeff")


def test_shard_map() -> None:
    first = first_map(["größe", "id"], {Shard(0): 1, Shard(1): 1})
    value = rebalanced(first, {Shard(0): 1, Shard(1): 2, Shard(2): 0, Shard(7): 1})
    frozen = (FROZEN / "map-1.json").read_bytes()
    assert (decode_map(frozen, "here"), encode_map(value)) == (value, frozen)
    viewed, frozen_viewed = with_views(value, 4), (FROZEN / "map-3.json").read_bytes()
    assert (decode_map(frozen_viewed, "here"), encode_map(viewed)) == (viewed, frozen_viewed)
    left = without_shard(value, Shard(2), 8589934612)
    frozen_left = (FROZEN / "map-4.json").read_bytes()
    assert (decode_map(frozen_left, "here"), encode_map(left)) == (left, frozen_left)
    with pytest.raises(UnsupportedFormat, match="here has format 5, this replitree knows 4"):
        decode_map(frozen.replace(b'"format":1', b'"format":5'), "here")


def test_progress_of_moves() -> None:
    batch = Batch(Shard(0), Shard(7), ("2026-11", "all"), "r1", fx.StagingId("5f0c-1.2"), 41, 2, 1000)
    idle = (FROZEN / "moves-1-idle.json").read_bytes()
    for frozen, value in (
        ((FROZEN / "moves-1.json").read_bytes(), MovesProgress(batch, 3, 5000)),
        (idle, MovesProgress(batches=3, rows=5000)),
    ):
        assert (decode_progress(frozen, "here"), encode_progress(value)) == (value, frozen)
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1"):
        decode_progress(idle.replace(b'"format":1', b'"format":2'), "here")


def test_shard_map_with_moves() -> None:
    first = first_map(["größe", "id"], {Shard(0): 1, Shard(1): 1})
    value = moving(first, rebalanced(first, {Shard(0): 1, Shard(1): 2, Shard(2): 0, Shard(7): 1}))
    frozen = (FROZEN / "map-2.json").read_bytes()
    assert (decode_map(frozen, "here"), encode_map(value)) == (value, frozen)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("life-1", MADE),
        ("life-1-making", Life("making", first_map(["id"], {Shard(0): 1, Shard(1): 1}, 2))),
        ("life-1-dropping", DROPPING),
    ],
)
def test_life_of_a_sharded_table(name: str, value: Life) -> None:
    frozen = (FROZEN / f"{name}.json").read_bytes()
    assert (decode_life(frozen, "here"), encode_life(value)) == (value, frozen)
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1"):
        decode_life(frozen.removesuffix(b"1}") + b"2}", "here")


def test_placement_of_shards() -> None:
    value = Placement(((Shard(0), ("r1", "r2")), (Shard(3), ("r-3",))))
    frozen = (FROZEN / "placement-1.json").read_bytes()
    assert (decode_placement(frozen, "here"), encode_placement(value)) == (value, frozen)
    assert (value.of(Shard(3)), value.of(Shard(1))) == (("r-3",), None)
    assert [value.hosts(Shard(number), "r1") for number in (0, 1, 3)] == [True, True, False]
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1"):
        decode_placement(frozen.replace(b'"format":1', b'"format":2'), "here")


def test_how_a_cluster_hosts_new_sharded_tables() -> None:
    value = DefaultSharding(2, 3)
    frozen = (FROZEN / "default-sharding-1.json").read_bytes()
    assert (decode_default(frozen, "here"), encode_default(value)) == (value, frozen)
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1"):
        decode_default(frozen.replace(b'"format":1', b'"format":2'), "here")


CUT, SHARDS = "5f0c@8589934612", (KeptShard("orders~0", 41, "r1"), KeptShard("orders~12", 2**40, "r2"))


NAMED_CUTS: tuple[tuple[str, NamedCuts[Any], Any], ...] = (
    ("cut-tag-1.json", CUT_TAGS, CutTagValue(CUT, COMMAND, SHARDS, 3, 7, 2**50)),
    ("cut-consumer-1.json", CUT_CONSUMERS, CutConsumerValue(CUT, COMMAND, SHARDS, 1.5, 2**50, snapshot=True)),
)


@pytest.mark.parametrize(("file", "kind", "value"), NAMED_CUTS)
def test_tags_and_consumers_of_sharded_tables(file: str, kind: NamedCuts[Any], value: Any) -> None:
    frozen = (FROZEN / file).read_bytes()
    assert kind.decode(frozen, "here") == value
    assert kind.encode(value) == frozen
    with pytest.raises(UnsupportedFormat, match="format 2"):
        kind.decode(frozen.replace(b'"format":1', b'"format":2'), "here")
    with pytest.raises(UnsupportedFormat, match="can't be read"):
        kind.decode(b"{}", "here")


def test_a_restored_shard() -> None:
    frozen, value = (
        (FROZEN / "restored-1.json").read_bytes(),
        RestoredShard("r1", Standing("5f0c", 8589934612, 8589934699)),
    )
    assert (decode_restored(frozen, "here"), encode_restored(value)) == (value, frozen)
    with pytest.raises(UnsupportedFormat, match="here has format 2, this replitree knows 1"):
        decode_restored(frozen.replace(b'"format":1', b'"format":2'), "here")


def test_life_of_a_table_that_is_being_restored() -> None:
    value = Life("restoring", first_map(["größe"], {Shard(0): 1, Shard(1): 1}, 8))
    frozen = (FROZEN / "life-1-restoring.json").read_bytes()
    assert (decode_life(frozen, "here"), encode_life(value)) == (value, frozen)
