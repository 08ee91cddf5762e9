"""What a shard's folder keeps of its sharded table: whole after any crash, and a damaged standing is no standing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from replitree.errors import StoreError, UnsupportedFormat
from replitree.protocol.sharded.placement import EVERYWHERE, encode_placement
from replitree.protocol.sharded.shard_map import Shard, decode_map, encode_map, first_map
from replitree.storage.disk.kept_sharding import (
    SHARDING_FILE,
    STANDING_FILE,
    KeptSharding,
    KeptStanding,
    keep_sharding,
    keep_standing,
    parts_digest,
    read_sharding,
    read_standing,
)
from replitree.storage.files.sealed_json import seal, unseal

MAP = first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8)
SHARDING = KeptSharding(
    table_id="5f0c",
    incarnation="a1",
    version=3,
    map=msgspec.Raw(encode_map(MAP)),
    placement=msgspec.Raw(encode_placement(EVERYWHERE)),
)
STANDING = KeptStanding(ensemble="e", first=3, last=7, parts=parts_digest(["all_0_0_0"]))


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    assert (read_sharding(tmp_path), read_standing(tmp_path)) == (None, None)
    keep_sharding(tmp_path, SHARDING)
    keep_standing(tmp_path, STANDING)
    found = read_sharding(tmp_path)
    assert found is not None
    assert (found.table_id, found.incarnation, found.version) == ("5f0c", "a1", 3)
    assert decode_map(bytes(found.map), "there") == MAP
    assert read_standing(tmp_path) == STANDING
    assert sorted(path.name for path in tmp_path.iterdir()) == [SHARDING_FILE, STANDING_FILE]


def test_a_damaged_map_is_told_and_a_damaged_standing_is_none(tmp_path: Path) -> None:
    keep_sharding(tmp_path, SHARDING)
    keep_standing(tmp_path, STANDING)
    for name in (SHARDING_FILE, STANDING_FILE):
        content = bytearray((tmp_path / name).read_bytes())
        content[-3] ^= 1
        (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match="take that of another replica of the shard"):
        read_sharding(tmp_path)
    assert read_standing(tmp_path) is None
    keep_standing(tmp_path, STANDING)
    assert read_standing(tmp_path) == STANDING


def test_those_of_a_newer_replitree_are_refused(tmp_path: Path) -> None:
    keep_sharding(tmp_path, SHARDING)
    newer = unseal((tmp_path / SHARDING_FILE).read_bytes(), 1).replace(b'{"format":1', b'{"format":9')
    (tmp_path / SHARDING_FILE).write_bytes(seal(newer))
    with pytest.raises(UnsupportedFormat, match="upgrade it"):
        read_sharding(tmp_path)
