"""What keepers have written stays readable, and a log of each version of the rules makes the state that it made."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.keeper.core import snapshot
from replitree.keeper.core.apply import applied
from replitree.keeper.core.batch import (
    Batch,
    Begin,
    Expire,
    Internal,
    Open,
    Reap,
    decode_batch,
    decode_internal,
    encode_batch,
    encode_internal,
)
from replitree.keeper.core.state import begin

FROZEN = Path(__file__).parent / "keeper"

BATCH = Batch(
    rules=1,
    generation=7,
    now_ms=1_700_000_000_000,
    identities=[[(b"ip", b"127.0.0.1")], []],
    sessions=[7 << 24 | 1, 0],
    identity_indexes=[0, 1],
    frames=[bytes.fromhex("0000000100000002000000022f61ffffffff"), encode_internal(Open(30_000))],
)

INTERNAL: dict[str, Internal] = {
    "begin": Begin(b"0123456789abcdef"),
    "open": Open(30_000),
    "prolong": Open(60_000, 7 << 24 | 1),
    "expire": Expire(7 << 24 | 1),
    "reap": Reap(b"/container", 7 << 32 | 5),
}

LOGS = {1: ("1c8eb44545e0e24b", 4294967347)}
"""Rules to digest and zxid of the state that the frozen log makes."""


def frozen(name: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in (FROZEN / f"{name}.hex").read_text(encoding="ascii").split()]


def test_batch_is_frozen() -> None:
    assert [encode_batch(BATCH)] == frozen("batch")
    assert decode_batch(frozen("batch")[0]) == BATCH


@pytest.mark.parametrize("name", INTERNAL)
def test_frame_of_the_keeper_itself_is_frozen(name: str) -> None:
    data = dict(zip(INTERNAL, frozen("internal"), strict=True))[name]
    assert encode_internal(INTERNAL[name]) == data
    assert decode_internal(data) == INTERNAL[name]


@pytest.mark.parametrize("rules", LOGS)
def test_a_log_of_these_rules_makes_the_state_that_it_made_and_its_snapshot_is_frozen(rules: int) -> None:
    state = begin()
    for entry in frozen(f"log-{rules}"):
        assert all(not outcome.fault for outcome in applied(state, decode_batch(entry)))
    assert (f"{state.digest:016x}", state.zxid) == LOGS[rules]
    assert list(snapshot.pieces(snapshot.freeze(state))) == frozen(f"snapshot-{rules}")
    assert snapshot.restore(frozen(f"snapshot-{rules}")).digest == state.digest
