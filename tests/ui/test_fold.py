"""The fold in JavaScript is the fold in Python, at every position, forwards and backwards."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from replitree.client.read.table_log import Logged
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.fold import apply, is_open, open_after
from replitree.protocol.core.part_set import PartSet
from replitree.ui.merge_waits import FoldedLog
from replitree.ui.table_view import columns_of, page_entry
from tests.protocol.feed_oracle import Table, drawn
from tests.ui.engine import evaluate

SEEKS = """(() => { const machine = new TimeMachine({index: 0}); machine.append(entries);
return order.map((at) => { machine.seek(at); return [machine.parts.all().map((part) => part.name), machine.opened]; }); })()"""


def states_of(table: Table) -> list[tuple[list[str], list[int]]]:
    """Parts and open inserts of a table at each position of its log."""
    parts, opened = PartSet(), tuple[LogIndex, ...]()
    states = [(list[str](), list[int]())]
    for number, entry in enumerate(table.log):
        parts, _ = apply(parts, LogIndex(number), entry, opened=opened)
        opened = open_after(opened, LogIndex(number), entry)
        states.append(([part.name for part in parts], list(opened)))
    return states


def entries_of(table: Table) -> list[object]:
    """The log as the page has it."""
    logged = (page_entry(Logged(LogIndex(number), entry, 0), "t") for number, entry in enumerate(table.log))
    return [msgspec.to_builtins(each) for each in logged]


@pytest.mark.parametrize("seed", range(30))
def test_parts_are_those_of_the_fold_in_python_at_every_position(seed: int) -> None:
    table = drawn(seed, 60)
    states, random = states_of(table), Random(seed)
    positions = list(range(len(states)))
    order = [*positions, *reversed(positions), *(random.choice(positions) for _ in range(30))]
    found = evaluate(SEEKS, entries=entries_of(table), order=order)
    assert [(names, opened) for names, opened in found] == [states[at] for at in order]


@pytest.mark.parametrize("seed", range(12))
def test_what_the_selector_is_asked_about_is_what_the_browser_shows(seed: int) -> None:
    table = drawn(seed, 60)
    folded = FoldedLog(columns_of((), 0))
    folded.take(Logged(LogIndex(number), entry, 1000 * number) for number, entry in enumerate(table.log))
    candidates = folded.candidates(1000 * len(table.log))
    shown = """(() => { const machine = new TimeMachine({index: 0}); machine.append(entries); machine.seek(machine.tail);
    return [machine.parts.all().map((part) => [part.name, part.rows, part.bytes]), machine.opened]; })()"""
    parts, opened = evaluate(shown, entries=entries_of(table))
    assert [[each.part.name, each.rows, each.bytes] for each in candidates] == parts
    assert [each.free for each in candidates] == [not is_open(each.part, tuple(opened)) for each in candidates]
    assert all(0 <= each.age_s <= len(table.log) for each in candidates)


def test_a_log_is_the_same_whether_it_comes_at_once_or_piece_by_piece() -> None:
    table = drawn(3, 60)
    pieces = """(() => { const machine = new TimeMachine({index: 0});
    for (let at = 0; at < entries.length; at += 7) { machine.append(entries.slice(at, at + 9)); machine.seek(machine.tail); }
    return machine.parts.all().map((part) => part.name); })()"""
    assert evaluate(pieces, entries=entries_of(table)) == states_of(table)[-1][0]


def test_a_base_is_gone_on_from() -> None:
    columns = {
        "index": 7,
        "partitions": ["a", "b"],
        "partition": [0, 1],
        "min": [0, 3],
        "max": [2, 3],
        "level": [1, 0],
        "mutation": [0, 5],
        "rows": [30, 4],
        "bytes": [300, 40],
    }
    merge = {"i": 7, "kind": "merge", "sources": ["a_0_2_1"]}
    parts = """(() => { const machine = new TimeMachine(columns); machine.append([merge]); machine.seek(8);
    return machine.parts.all().map((part) => [part.name, part.rows, part.bytes]); })()"""
    assert evaluate(parts, columns=columns, merge=merge) == [["a_0_2_2", 30, 300], ["b_3_3_0_5", 4, 40]]


def test_copies_that_a_long_log_keeps_change_no_state() -> None:
    """Jumps begin at copies, which share arrays with the parts that go on: the parts are those of single steps everywhere."""
    jumps = """(() => { let seed = 7;
    const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    const inserted = (i) => [['p' + i % 7, 1, 10], ['q' + i, 1, 10]];
    const entries = Array.from({length: 3000}, (_, i) => ({i, kind: 'get', drops: [], parts: inserted(i)}));
    for (let at = 40; at < 3000; at += 40) entries[at] = {i: at, kind: 'mutate', partition: 'p' + at % 7};
    for (let at = 60; at < 3000; at += 300) entries[at] = {i: at, kind: 'drop', partition: 'p1', min: null, max: null};
    const stepwise = new TimeMachine({index: 0}), jumping = new TimeMachine({index: 0});
    stepwise.append(entries); jumping.append(entries);
    const told = (machine) => JSON.stringify([machine.parts.length, machine.parts.names().length,
      machine.parts.all().map((part) => part.name), machine.parts.names().map((name) => machine.parts.sumsOf(name).bytes)]);
    const states = [];
    for (let at = 0; at <= 3000; at++) { stepwise.seek(at); if (at % 100 === 0) states.push(told(stepwise)); }
    const wrong = [];
    for (let turn = 0; turn < 120; turn++) {
      const at = Math.floor(random() * 31);
      // Not all at once: a browser goes over some entries in each frame.
      while (!jumping.seek(100 * at, 90 + turn)) { /* goes on */ }
      if (told(jumping) !== states[at]) wrong.push(100 * at);
    }
    return [wrong, jumping.kept.length > 3]; })()"""
    assert evaluate(jumps) == [[], True]


def test_sizes_that_a_replica_tells_reach_copies_and_sums() -> None:
    told = """(() => { const machine = new TimeMachine({index: 0});
    machine.append([{i: 0, kind: 'get', drops: [], parts: [['a', 1, 10]]},
      {i: 1, kind: 'get', drops: [], parts: [['a', 1, 10]]},
      {i: 2, kind: 'merge', sources: ['a_0_0_0', 'a_1_1_0']}]);
    machine.seek(3);
    const before = [machine.isEstimated, machine.parts.sumsOf('a').bytes];
    machine.measure({partitions: ['a'], partition: [0], min: [0], max: [1], level: [1], mutation: [0], rows: [2], bytes: [13]});
    return [before, [machine.isEstimated, machine.parts.sumsOf('a').bytes]]; })()"""
    assert evaluate(told) == [[True, 20], [False, 13]]
