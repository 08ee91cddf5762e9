"""The feed of every entry is the difference of what reads show, for random logs of every kind of entry and policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from replitree.protocol.core.effects import LogIndex, StagedPart, StagingId
from replitree.protocol.core.entries import FORMATS, FailEntry, GetEntry, LostEntry, SettleEntry
from replitree.protocol.core.fold import Change
from replitree.protocol.core.parts import parse_part
from replitree.protocol.feed import definition
from replitree.protocol.feed.definition import EMPTY, RULES, OpenInserts, Step, Unit, is_damaged_by
from replitree_verify.patches.patch import read_patch
from tests.protocol.feed_oracle import Row, Table, drawn

LOGS = 1_200
MUTANTS = Path(__file__).parent / "feed_mutants"


def check_rows(table: Table) -> None:
    """F1, F6 (plain): what reads show at each index, and the feed of the entry, is what they show after it."""
    for index, (feed, rows) in enumerate(table.feeds):
        if feed.gap is None:
            found = Counter(table.visible[index])
            found.update(rows)
            assert {row: n for row, n in found.items() if n} == table.visible[index + 1], f"F1 at {index}"


def check_once(table: Table) -> None:
    """F3: the rows of an insert come at its own index, or where it settles, and there alone."""
    came = Counter(
        (unit.part.partition, unit.part.block_min)
        for index, (feed, _) in enumerate(table.feeds)
        for unit in feed.units
        if unit.type == "insert" and unit.part.block_min == unit.part.block_max
    )
    failed = {(name, e.index) for e in table.log if isinstance(e, FailEntry) for name in e.partitions}
    assert not [each for each, count in came.items() if count > 1], "F3: an insert came twice"
    assert not came.keys() & failed, "F3: an insert came that failed"
    for index, (feed, _) in enumerate(table.feeds):
        entry = table.log[index]
        if isinstance(entry, GetEntry) and entry.format == 3:
            assert not [unit for unit in feed.units if unit.type == "insert"], "F3: an insert came while it was open"


def check_silent(table: Table) -> None:
    """F4: what changes no visible row emits nothing."""
    for entry, (feed, _) in zip(table.log, table.feeds, strict=True):
        kind = str(type(entry).__struct_config__.tag)
        if kind in {"merge", "storage", "roll", "fail", "alter"}:
            assert not feed.units, f"F4: {kind}"


def check_gaps(table: Table) -> None:
    """F5: rows that vanish, and that no entry lists, are a gap."""
    for index, (entry, (feed, _)) in enumerate(zip(table.log, table.feeds, strict=True)):
        if isinstance(entry, LostEntry) and table.visible[index] != table.visible[index + 1]:
            assert feed.gap is not None, "F5: rows are lost without a gap"


def check_sums(table: Table) -> None:
    """F6 (summing): what the feed adds and takes off each key is the difference of the sums."""
    for index, (feed, rows) in enumerate(table.feeds):
        if feed.gap is None:
            sums = sums_of(table.visible[index])
            sums.update(sums_of(rows))
            assert +sums == +sums_of(table.visible[index + 1]), f"F6 at {index}"


def sums_of(rows: Counter[Row]) -> Counter[int]:
    sums = Counter[int]()
    for (key, _, value), count in rows.items():
        sums[key] += value * count
    return sums


def check_keys(table: Table) -> None:
    """F6 (replacing): puts and deletes by key keep the final rows of a consumer those of the table, from any index on."""
    for start in range(len(table.log)):
        known = final_of(table.visible[start])
        for index in range(start, len(table.log)):
            for what, row in table.puts[index]:
                now = known.get(row[0])
                if what == "put" and (now is None or row[1] >= now[1]):
                    known[row[0]] = row
                elif what == "delete" and now is not None and row[1] >= now[1]:
                    del known[row[0]]
            assert known == final_of(table.visible[index + 1]), f"F6 at {index} from {start}"


def final_of(rows: Counter[Row]) -> dict[int, Row]:
    """The newest row of each key."""
    return {row[0]: row for row in sorted(rows, key=lambda row: row[1])}


Check = Callable[[Table], None]
PLAIN: tuple[Check, ...] = (check_rows, check_once, check_silent, check_gaps)
JUDGES: dict[str, tuple[tuple[str, Check], ...]] = {
    "F1": (("plain", check_rows),),
    "F3": (("plain", check_once),),
    "F4": (("plain", check_silent),),
    "F5": (("plain", check_gaps),),
    "F6": (("summing", check_sums), ("replacing", check_keys)),
}


@pytest.mark.parametrize("block", range(4))
def test_the_feed_is_the_difference_of_what_reads_show(block: int) -> None:
    for seed in range(block * LOGS // 4, (block + 1) * LOGS // 4):
        table = drawn(seed)
        for check in PLAIN:
            check(table)


def test_the_logs_have_everything() -> None:
    seen = Counter[str]()
    for seed in range(200):
        table = drawn(seed)
        for index, (entry, (feed, _)) in enumerate(zip(table.log, table.feeds, strict=True)):
            seen[str(type(entry).__struct_config__.tag)] += 1
            seen.update(unit.type for unit in feed.units)
            seen["gap"] += feed.gap is not None
            is_mutated = any(unit.part.mutation for unit in feed.units)
            seen["settled as mutated"] += isinstance(entry, SettleEntry) and is_mutated
            seen["settled after a drop"] += isinstance(entry, SettleEntry) and not feed.units
            seen["overwrite"] += isinstance(entry, GetEntry) and any(unit.type == "delete" for unit in feed.units)
            seen["nothing"] += table.visible[index] == table.visible[index + 1]
    kinds = ("insert", "delete", "mutate", "rewrite", "gap", "overwrite", "nothing")
    wanted = {*FORMATS, *kinds, "settled as mutated", "settled after a drop"}
    assert {what for what in wanted if seen[what] < 5} == set()


def test_from_any_snapshot_on_the_feed_leads_to_any_later_one() -> None:
    for seed in range(40):
        table = drawn(seed)
        for start in range(len(table.log)):
            found = Counter(table.visible[start])
            for index in range(start, len(table.log)):
                feed, rows = table.feeds[index]
                if feed.gap is not None:
                    break
                found.update(rows)
                assert {row: n for row, n in found.items() if n} == table.visible[index + 1], (seed, start, index)


def test_sums_of_a_summing_table_follow_the_feed() -> None:
    for seed in range(LOGS // 2):
        check_sums(drawn(seed, policy="summing", by_key=True))


def test_final_rows_of_a_replacing_table_follow_the_feed_by_key() -> None:
    for seed in range(LOGS // 4):
        check_keys(drawn(seed, length=20, policy="replacing", by_key=True))


@pytest.mark.nightly
def test_ten_thousand_logs_of_each_policy_feed_the_difference_of_what_reads_show() -> None:
    for seed in range(10_000):
        table = drawn(seed)
        for check in PLAIN:
            check(table)
        check_sums(drawn(seed, policy="summing", by_key=True))
        check_keys(drawn(seed, length=20, policy="replacing", by_key=True))


def test_every_kind_of_entry_has_a_rule() -> None:
    assert RULES.keys() == FORMATS.keys()


def test_a_kind_that_is_not_known_is_no_empty_step() -> None:
    with pytest.raises(KeyError):
        definition.advance(OpenInserts(), Step("", Change()))


def test_an_insert_that_is_open_at_the_start_comes_where_it_settles() -> None:
    parts = [parse_part("a_3_3_0_5"), parse_part("a_0_2_1"), parse_part("b_3_3_0")]
    before = OpenInserts.of(parts, (LogIndex(3),))
    after, feed = definition.advance(before, Step("settle", Change()))
    assert feed.units == (Unit("insert", parts[0]), Unit("insert", parts[2]))
    assert after == OpenInserts()


def test_a_later_loss_damages_what_was_made_of_the_part_and_not_what_it_was_made_of() -> None:
    lost = parse_part("a_3_3_0_7")
    assert is_damaged_by(Unit("mutate", lost, parse_part("a_3_3_0")), lost)
    assert is_damaged_by(Unit("delete", parse_part("a_0_5_1_7")), lost)
    assert not is_damaged_by(Unit("insert", parse_part("a_3_3_0")), lost)


@pytest.mark.parametrize("written", [[5, 5, 4, 9, 1, 1], [0, 0, 3]])
def test_timestamps_increase_when_the_clock_goes_back(written: list[int]) -> None:
    found, last = list[int](), 0
    for written_ms in written:
        last = definition.timestamp_us(last, written_ms)
        found.append(last)
    assert found == sorted(set(found))
    assert all(us >= 1_000 * ms for us, ms in zip(found, written, strict=True))


@pytest.mark.parametrize("path", sorted(MUTANTS.glob("*.patch")), ids=lambda path: path.stem)
def test_every_mutant_of_the_definition_is_caught(path: Path) -> None:
    patch = read_patch(path.stem, path.read_text())
    invariant = path.stem.split("-", 1)[0].upper()
    for policy, check in JUDGES[invariant]:
        with patch.mutated(), pytest.raises(AssertionError, match=invariant):
            judge(policy, check)


def judge(policy: str, check: Check) -> None:
    for seed in range(400):
        check(drawn(seed, length=20, policy=policy, by_key=policy != "plain"))


def test_an_open_insert_is_not_emitted() -> None:
    entry = GetEntry("r1", StagingId("s"), (StagedPart("a", 1, 1, "h"),), (), format=3, quorum=2)
    change = Change((), (parse_part("a_0_0_0"),))
    after, feed = definition.advance(OpenInserts(), definition.step_of(entry, change, (LogIndex(0),)))
    assert feed == EMPTY
    assert after.parts == change.added
