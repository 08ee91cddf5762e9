"""The state machine: total, all or nothing, and the same for every replay."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import UnsupportedFormat
from replitree.keeper.core import quota, snapshot
from replitree.keeper.core.apply import applied, apply_frame
from replitree.keeper.core.batch import (
    BadBatch,
    Batch,
    Expire,
    Internal,
    Open,
    Reap,
    decode_batch,
    encode_batch,
    encode_internal,
)
from replitree.keeper.core.state import RULES, SESSIONS_MAX, ZXIDS_MAX, State
from replitree.keeper.core.wire import Code, Op, take_frame
from tests.keeper.conversations import Drawing
from tests.keeper.frames import create_body, multi_body, request, set_body, versioned
from tests.keeper.memory import begun


def contents(state: State) -> dict[str, Any]:
    """Everything in a state, without the order of its tables."""
    names = ("nodes", "counters", "acls", "lifetimes", "sessions", "children", "ephemerals", "limited")
    return {name: dict(getattr(state, name)) for name in names} | {"digest": state.digest}


def batch_of(*frames: bytes, session: int = 0, generation: int = 1, now_ms: int = 2_000) -> Batch:
    count = len(frames)
    return Batch(RULES, generation, now_ms, [[]], [session] * count, [0] * count, list(frames))


def run(state: State, *frames: bytes, session: int = 0, **others: int) -> list[Any]:
    return list(applied(state, batch_of(*frames, session=session, **others)))


def with_session() -> tuple[State, int]:
    state = begun()
    (opened,) = run(state, encode_internal(Open(5_000)))
    return state, opened.opened


def bare(framed: bytes) -> bytes:
    return framed[4:]


def frames_of(seed: int) -> list[bytes]:
    """The requests of a random conversation."""
    found = list[bytes]()
    for step in Drawing(seed, "/r").steps():
        data = bytearray(step.data)
        while (frame := take_frame(data)) is not None:
            found.append(frame)
    return found


@given(st.binary(max_size=64), st.integers(-12, 110))
def test_no_bytes_raise_or_leave_half_a_change(noise: bytes, op: int) -> None:
    state, session = with_session()
    before = contents(state)
    for frame in (noise, b"\0\0\0\1" + op.to_bytes(4, "big", signed=True) + noise):
        outcome = apply_frame(state, session, (), frame)
        assert outcome.reply
        assert not outcome.fault
        if not outcome.changes and not outcome.ended:
            assert contents(state) == before
    assert not apply_frame(state, 0, (), noise).fault


@pytest.mark.parametrize("seed", range(30))
def test_damaged_requests_never_raise_and_the_digest_stays_that_of_the_content(seed: int) -> None:
    drawn = random.Random(seed)
    state, session = with_session()
    for frame in frames_of(seed):
        damaged = bytearray(frame)
        for _ in range(drawn.randrange(3)):
            damaged[drawn.randrange(4, len(damaged))] = drawn.randrange(256)
        outcome = apply_frame(state, session, (), bytes(damaged))
        assert not outcome.fault
    assert contents(snapshot.restore(snapshot.pieces(snapshot.freeze(state)))) == contents(state)


def test_an_error_of_ours_is_undone_answered_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    state, session = with_session()
    before, zxid = contents(state), state.zxid

    def broken(*_arguments: object) -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr(quota, "counted", broken)
    (outcome,) = run(state, bare(request(1, Op.CREATE, create_body("/a"))), session=session)
    monkeypatch.undo()
    assert outcome.fault == "ValueError: on purpose"
    assert contents(state) == before
    assert int.from_bytes(outcome.reply[16:20], "big", signed=True) == Code.SYSTEM_ERROR
    assert state.zxid == zxid + 1
    (outcome,) = run(state, bare(request(1, Op.CREATE, create_body("/a"))), session=session)
    assert not outcome.fault
    assert b"/a" in state.nodes


def test_want_of_memory_is_not_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    state, session = with_session()

    def full(*_arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(quota, "counted", full)
    with pytest.raises(MemoryError):
        run(state, bare(request(1, Op.CREATE, create_body("/a"))), session=session)


@pytest.mark.parametrize("seed", range(40))
def test_a_multi_that_fails_leaves_the_state_as_it_was(seed: int) -> None:
    state, session = with_session()
    for frame in frames_of(seed):
        apply_frame(state, session, (), frame)
    run(state, bare(request(1, Op.CREATE, create_body("/p"))), session=session)
    before = contents(state)
    drawn = random.Random(seed)
    paths = [*sorted(state.nodes), b"/p/x", b"/p/e"]
    operations = list[tuple[int, bytes]]()
    for _ in range(drawn.randrange(1, 8)):
        path = drawn.choice(paths)
        choices = (
            (Op.CREATE, create_body(path + b"/n", flags=drawn.randrange(4))),
            (Op.CREATE_CONTAINER, create_body(path + b"/c")),
            (Op.DELETE, versioned(path)),
            (Op.SET_DATA, set_body(path, b"data")),
        )
        operations.append(drawn.choice(choices))
    operations.append((Op.CHECK, versioned("/none")))
    (outcome,) = run(state, bare(request(1, Op.MULTI, multi_body(*operations))), session=session)
    assert outcome.changes == ()
    assert contents(state) == before


def test_requests_behind_the_close_of_their_session_in_one_batch_have_no_effect() -> None:
    state, session = with_session()
    frames = [request(1, Op.CREATE, create_body("/a", flags=1)), request(2, Op.CLOSE_SESSION)]
    frames += [
        request(3, Op.CREATE, create_body("/b", flags=1)),
        request(4, Op.MULTI, multi_body((Op.CREATE, create_body("/c")))),
    ]
    outcomes = run(state, *map(bare, frames), session=session)
    assert [int.from_bytes(each.reply[16:20], "big", signed=True) for each in outcomes] == [0, 0, -112, 0]
    assert set(state.nodes) & {b"/a", b"/b", b"/c"} == set()
    assert state.ephemerals == {}


@pytest.mark.parametrize("frame", [Expire(77), Reap(b"/none", 1), Reap(b"/", 0), Open(5_000, 77)])
def test_what_is_outdated_when_it_is_applied_changes_nothing(frame: Internal) -> None:
    state, _ = with_session()
    before = contents(state)
    (outcome,) = run(state, encode_internal(frame))
    assert outcome[1:] == (b"", (), 0, 0, "")
    assert contents(state) == before


def test_a_node_that_was_made_anew_is_not_reaped() -> None:
    state, session = with_session()
    run(state, bare(request(1, Op.CREATE_CONTAINER, create_body("/c"))), session=session)
    run(
        state,
        bare(request(1, Op.CREATE, create_body("/c/a"))),
        bare(request(1, Op.DELETE, versioned("/c/a"))),
        session=session,
    )
    (outcome,) = run(state, encode_internal(Reap(b"/c", 1)))
    assert outcome.changes == ()
    assert b"/c" in state.nodes


def test_numbers_that_are_used_up_are_refused() -> None:
    state, session = with_session()
    state.opened = SESSIONS_MAX
    (outcome,) = run(state, encode_internal(Open(5_000)))
    assert outcome.opened == 0
    state.requests = ZXIDS_MAX
    (outcome,) = run(state, bare(request(1, Op.CREATE, create_body("/a"))), session=session)
    assert outcome.zxid == state.zxid
    assert b"/a" not in state.nodes


def test_time_never_goes_back() -> None:
    state, session = with_session()
    run(state, bare(request(1, Op.CREATE, create_body("/a"))), session=session, now_ms=9_000)
    run(state, bare(request(1, Op.CREATE, create_body("/b"))), session=session, now_ms=10)
    assert state.now_ms == 9_000


def test_an_entry_that_is_no_batch_stops_with_its_reason_and_changes_nothing() -> None:
    state, _ = with_session()
    before = contents(state)
    good = batch_of(encode_internal(Open(5_000)))
    for entry in (b"", b"\x01", encode_batch(good)[:-3], encode_batch(good) + b"\0"):
        with pytest.raises(BadBatch):
            decode_batch(entry)
    with pytest.raises(BadBatch, match="lengths"):
        decode_batch(encode_batch(Batch(1, 1, 1, [[]], [0, 0], [0], [b""])))
    with pytest.raises(BadBatch, match="identities"):
        decode_batch(encode_batch(Batch(1, 1, 1, [[]], [0], [1], [b""])))
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        list(applied(state, Batch(RULES + 1, 1, 1, [[]], [0], [0], [encode_internal(Open(1))])))
    run(state, encode_internal(Open(5_000)), generation=3)
    with pytest.raises(BadBatch, match="generation"):
        run(state, encode_internal(Open(5_000)), generation=2)
    assert contents(state)["nodes"] == before["nodes"]


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_and_the_rest_of_the_log_make_the_same_state_wherever_it_was_frozen(seed: int) -> None:
    _state, session = with_session()
    frames = frames_of(seed)
    for frozen_at in (0, len(frames) // 2, len(frames)):
        frozen = None
        again, _ = with_session()
        for place, frame in enumerate([*frames, b""]):
            if place == frozen_at:
                frozen = snapshot.freeze(again)
            apply_frame(again, session, (), frame)
        assert frozen is not None
        restored = snapshot.restore(snapshot.pieces(frozen))
        for frame in [*frames[frozen_at:], b""]:
            apply_frame(restored, session, (), frame)
        assert contents(restored) == contents(again)
        assert restored.zxid == again.zxid


def test_a_snapshot_that_lacks_a_piece_or_has_another_is_not_restored() -> None:
    state, session = with_session()
    run(state, bare(request(1, Op.CREATE, create_body("/a"))), session=session)
    stored = list(snapshot.pieces(snapshot.freeze(state)))
    for damaged in ([], stored[:-1], [*stored, stored[-1][:-1]], [stored[0], stored[1], *stored[3:]], [b"\x90"]):
        with pytest.raises(BadBatch):
            snapshot.restore(damaged)
    with pytest.raises(BadBatch, match="whole"):
        snapshot.restore([stored[0], stored[1].replace(b"/a", b"/b"), *stored[2:]])
    with pytest.raises(UnsupportedFormat):
        snapshot.restore([b"\x91\x02"])
