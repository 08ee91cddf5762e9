"""What a judged run is made of: clocks, pins, positions, the picture; and a short run."""

from __future__ import annotations

import json
import random
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from replitree.protocol.core.effects import LogIndex, StagedPart, StagingId
from replitree.protocol.core.entries import Entry, FailEntry, GetEntry, SettleEntry
from replitree.wire.history_format import Operation
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import parse, read_files
from replitree_verify.nemesis.overview import Struck, draw_run, write_report
from tests.faults.judged_run import HISTORY, REPORT, RESULT, JudgedPlan, run_judged
from tests.faults.positions import with_positions
from tests.faults.schedule import RECORDED, USUAL
from tests.faults.skew import DAY_S, RATES, Skew, draw_skew
from tests.faults.traffic import Order
from tests.verify.histories.known import A, B, insert, read

SVG = "{http://www.w3.org/2000/svg}"


def get(quorum: int | msgspec.UnsetType) -> GetEntry:
    return GetEntry("r1", StagingId("s"), (StagedPart("all", 1, 1, "h"),), (), quorum=quorum)


LOG: list[tuple[LogIndex, Entry]] = [
    (LogIndex(0), get(msgspec.UNSET)),
    (LogIndex(1), get(2)),
    (LogIndex(2), get(2)),
    (LogIndex(3), get(3)),
    (LogIndex(4), SettleEntry("r2", StagingId("s"), 1, ("r1", "r2"))),
    (LogIndex(5), FailEntry("r1", StagingId("s"), 3, ("all",))),
]


def test_a_clock_that_is_wrong_goes_its_own_way_and_recorders_do_not_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    true, monotonic, monotonic_ns = time.time, time.monotonic, time.monotonic_ns
    for name in ("time", "time_ns", "monotonic"):
        monkeypatch.setattr(time, name, getattr(time, name))
    Skew(offset_s=1000.0, rate=2.0).install()
    assert 1000 <= time.time() - true() < 1100
    assert 1000 <= time.time_ns() / 1e9 - true() < 1100
    begun, shown = monotonic(), time.monotonic()
    while monotonic() < begun + 0.01:
        pass
    assert time.monotonic() - shown >= 0.019
    assert time.monotonic_ns is monotonic_ns


def test_clocks_are_drawn_from_the_seed() -> None:
    drawn = [draw_skew(random.Random(seed)) for seed in range(50)]
    assert drawn == [draw_skew(random.Random(seed)) for seed in range(50)]
    assert {skew.rate for skew in drawn} == set(RATES)
    assert all(abs(skew.offset_s) <= DAY_S for skew in drawn)
    assert msgspec.json.decode(msgspec.json.encode(drawn[0]), type=Skew) == drawn[0]


def test_replicas_that_know_one_server_only_are_drawn_from_the_seed() -> None:
    drawn = [JudgedPlan(seed, 1.0).pinned() for seed in range(40)]
    assert {len(pinned) for pinned in drawn} == {0, 1, 3}
    assert drawn[7] == JudgedPlan(7, 99.0).pinned()
    assert {*RECORDED} - {*USUAL} == {"lag-follower"}


def test_the_log_says_where_an_insert_counts_and_who_has_it() -> None:
    told = [
        insert("x", 0, 9, A, index=0),
        insert("x", 10, 19, B, index=1, quorum=2),
        insert("x", 20, 29, ((5, 5),), "unknown", quorum=2),
        read("y", 30, 39, A),
    ]
    one, two, three, four = with_positions(told, LOG)
    assert (one, three, four) == (told[0], told[2], told[3])
    assert (two.settled, two.holders, two.quorum) == (4, ("r1", "r2"), 2)


@pytest.mark.parametrize("index", [0, 2, 3], ids=["without a quorum", "open", "failed"])
def test_an_insert_that_was_acknowledged_and_not_settled_is_held_by_nobody(index: int) -> None:
    operations = with_positions([insert("x", 0, 9, A, index=index, quorum=2)], LOG)
    assert operations[0].holders == ()
    assert check(parse(operations)).counts == {"S8": 1}


def test_the_report_draws_what_was_hurt_and_what_was_heard(tmp_path: Path) -> None:
    operations = [insert("x", 0, 10, A), Operation("read", "y", "t", 3 * 10**9, "failed", 4 * 10**9, "sequential")]
    strikes = [
        Struck("kill", "kill r1", 10**9, 2 * 10**9),
        Struck("pause", "pause r2", 2 * 10**9, 3 * 10**9),
    ]
    picture = ET.fromstring(draw_run(operations, strikes))
    words = {each.text for each in picture.iter(f"{SVG}text")}
    assert {"kill", "pause", "1 operations/s"} <= words
    assert [each.text for each in picture.iter(f"{SVG}title")] == [strike.text for strike in strikes]
    write_report(tmp_path / REPORT, "seed 1", check(parse(operations)), operations, strikes)
    assert (tmp_path / REPORT).read_text().count("<svg") == 1
    assert ET.fromstring(draw_run([], [])) is not None


def test_an_order_survives_its_way_to_another_process() -> None:
    order = Order("zk://h", "token", "t", ("r1",), 1, 0, 2, "folder", Skew(1.0, 2.0))
    assert msgspec.json.decode(msgspec.json.encode(order), type=Order) == order


@pytest.mark.system
def test_a_short_run_under_all_faults_keeps_every_promise_and_leaves_a_history(tmp_path: Path) -> None:
    judged = run_judged(JudgedPlan(seed=5, seconds=12.0, clients=20), tmp_path, lambda _: None)
    assert judged.verdict.fine
    assert judged.fold_compared
    assert judged.operations["all"] > 100
    assert any(name.startswith("quorum ok") for name in judged.operations)
    assert judged.verdict.operations == judged.operations["all"]
    assert check(read_files([tmp_path / HISTORY])).fine
    assert json.loads((tmp_path / RESULT).read_text())["verdict"]["fine"] is True
    assert "<svg" in (tmp_path / REPORT).read_text()


@pytest.mark.system
@pytest.mark.nightly
def test_a_short_run_of_a_sharded_table_is_judged_with_the_transactions_of_its_cuts(tmp_path: Path) -> None:
    kinds = tuple(kind for kind in RECORDED if kind != "corrupt")
    judged = run_judged(JudgedPlan(seed=5, seconds=12.0, clients=12, kinds=kinds, shards=2), tmp_path, lambda _: None)
    assert judged.verdict.fine
    assert judged.fold_compared
    history = read_files([tmp_path / HISTORY])
    found = [history.operation(number) for number in range(len(history))]
    placed = [each for each in found if each.outcome == "ok" and each.index is not None]
    assert {each.kind for each in placed} == {"insert", "read"}
    assert {each.level for each in placed if each.kind == "read"} <= {"sequential", "linearizable"}
    assert len([each for each in found if each.closing and each.outcome == "ok"]) == 2
