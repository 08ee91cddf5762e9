"""Runs of the procedures map onto the packed model of log cleaning; those of mutants do not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from replitree.errors import BadInput
from replitree_published.bridge import mapping
from replitree_published.bridge.cleaning import CLEANING
from replitree_published.bridge.explored import wrong_step
from replitree_published.bridge.mapping import Follower, Undecided
from replitree_published.bridge.outline import Outline, Standing
from replitree_published.bridge.recorded import read_outlines
from replitree_published.bridge.report import bridge_file, bridge_model, bridge_seeds

CLEANED = {"Mark", "Look", "Remove"}
RECOVERED = {"Return", "CloneBegin", "CloneEnd"}

TAKEN = {
    "clean_clean": CLEANED,
    "clean_crash": CLEANED,
    "clean_half_dropped": {"Look", "Remove"},
    "recover_get": RECOVERED,
    "recover_gone": RECOVERED,
    "drop_each_other": {"Mark"},
    "join_clean": {*CLEANED, *RECOVERED, "Join", "Execute"},
}
"""The actions of the packed model that the steps of a model are."""

TAKEN_SLOWLY = {
    "recover_crash": RECOVERED,
    "recover_pointer": {*RECOVERED, "Look", "Remove", "Execute"},
    "recover_source_lost": {*CLEANED, *RECOVERED, "Execute"},
    "recover_source_returns": {*CLEANED, *RECOVERED, "Execute"},
}

MUTANTS = {
    ("clean_clean", "marked-after-removal"): 9,
    ("clean_clean", "last-good-marked"): 9,
    ("join_clean", "added-replicas-unseen"): 18,
}
"""Steps of the shortest way to a step that the packed model does not have."""

MUTANTS_SLOWLY = {
    ("recover_source_lost", "removal-proves-nothing"): 38,
    ("recover_source_lost", "pointer-before-lost"): 38,
    ("recover_source_lost", "sources-not-kept-for"): 39,
    ("recover_pointer", "pointer-of-source-unversioned"): 20,
    ("recover_away", "recovery-ends-away"): 38,
}

ACTIONS = {
    f"cleaning {action}" for action in CLEANING.model.actions if action not in ("GiveUp", "LegitimateTermination")
}
"""All that coordination shows: who gives up a removal changes nothing there."""

REPLICATED = {"Insert", "Mutate", "Drop", "Bring", "LetGo", "Execute", "Mark", "Recover"}
"""Of one insert by itself a merge has one source, like a mutation; no part breaks in a simulation."""

QUORUMS = {"Insert", "Execute", "Count", "Settle", "Acknowledge", "Read"}
GIVEN_UP = {"Fail", "Refuse"}
"""Of inserts with a quorum, each by itself: none is followed beyond its end."""

READ_WRONGLY = (
    ("read-shows-open", 14, "a read that asks for {} shows {0}"),
    ("read-once-pulled", 1, "a read that asks for {0} shows {}"),
    ("read-at-own-pointer", 18, "a read that asks for {0} shows {}"),
)
"""Mutants of reads, a seed that shows each, and what its run comes to."""


@pytest.mark.parametrize("name", TAKEN)
def test_every_step_of_a_model_has_a_way(name: str) -> None:
    found = bridge_model(name)
    assert (found.violations, found.undecided) == ([], "")
    assert set(found.taken) == TAKEN[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKEN_SLOWLY)
def test_every_step_of_a_larger_model_has_a_way(name: str) -> None:
    found = bridge_model(name)
    assert (found.violations, found.undecided) == ([], "")
    assert set(found.taken) == TAKEN_SLOWLY[name]


@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_a_mutant_takes_a_step_that_has_no_way(name: str, mutant: str) -> None:
    found = bridge_model(name, mutant)
    assert [violation["steps"] for violation in found.violations] == [MUTANTS[name, mutant]]
    assert "mended/truncate-log has no way from [" in found.violations[0]["what"]
    assert found.trace[-1].strip()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mutant"), MUTANTS_SLOWLY)
def test_a_mutant_takes_a_step_that_has_no_way_after_many_states(name: str, mutant: str) -> None:
    found = bridge_model(name, mutant)
    assert [violation["steps"] for violation in found.violations] == [MUTANTS_SLOWLY[name, mutant]]


def test_simulated_runs_take_every_action() -> None:
    found = bridge_seeds(42, 44)
    assert (found.violations, found.undecided) == ([], "")
    of_inserts = {f"replication {action}" for action in REPLICATED} | {
        f"quorum {action}" for action in QUORUMS | GIVEN_UP
    }
    assert set(found.taken) == ACTIONS | of_inserts


def test_a_replica_that_counts_before_it_has_the_part_has_no_way_in_a_simulated_run() -> None:
    (violation,) = bridge_seeds(16, 17, "counted-at-pull").violations
    assert "mended/quorum-queues has no way from [insert 0 of 3; " in violation["what"]


@pytest.mark.parametrize(("mutant", "seed", "leads_to"), READ_WRONGLY)
def test_a_wrong_read_has_no_way_in_a_simulated_run(mutant: str, seed: int, leads_to: str) -> None:
    (violation,) = bridge_seeds(seed, seed + 1, mutant).violations
    before, _, after = violation["what"].partition("] to [")
    assert "mended/quorum-queues has no way from [insert 0 of " in before
    assert leads_to in after


@pytest.mark.slow
def test_a_replica_that_is_dropped_while_an_insert_is_open_goes_without_a_step() -> None:
    found = bridge_seeds(2402, 2403)
    assert (found.violations, found.undecided) == ([], "")


def test_a_simulated_insert_that_is_given_up_is_refused() -> None:
    found = bridge_seeds(12, 13)
    assert (found.violations, found.undecided) == ([], "")
    assert {f"quorum {action}" for action in GIVEN_UP} <= set(found.taken)


def test_a_simulated_insert_that_is_dropped_while_it_is_open_is_settled_all_the_same() -> None:
    found = bridge_seeds(191, 192)
    assert (found.violations, found.undecided) == ([], "")


@pytest.mark.parametrize(
    ("first", "end"),
    [
        pytest.param(5, 12, marks=pytest.mark.slow),
        # A part is mutated three times after its insert was declared lost, and its middle form is forgotten.
        pytest.param(170, 171, marks=pytest.mark.slow),
        pytest.param(12, 200, marks=pytest.mark.nightly),
    ],
)
def test_many_simulated_runs_have_a_way(first: int, end: int) -> None:
    found = bridge_seeds(first, end)
    assert (found.violations, found.undecided) == ([], "")


def test_a_recorded_run_is_followed_as_it_ran(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    ran = bridge_seeds(7, 8, record=file)
    replayed = bridge_file(file)
    taken = {f"cleaning {action}": count for action, count in replayed.taken.items()}
    assert replayed.states == ran.states
    assert taken == {action: count for action, count in ran.taken.items() if action.startswith("cleaning")}
    assert replayed.violations == []


def test_a_recorded_run_with_a_removal_too_many_is_caught_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    bridge_seeds(7, 8, record=file)
    lines = file.read_bytes().splitlines()
    outline = msgspec.json.decode(lines[-1], type=Outline)
    lines[-1] = msgspec.json.encode(msgspec.structs.replace(outline, first=outline.end + 1))
    file.write_bytes(b"\n".join(lines))
    found = bridge_file(file)
    assert found.violations[0]["what"].endswith(f"(line {len(lines)})")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("{", "line 1 is not of a recorded run"),
        ('{"format":2,"replicas":[]}', "has format 2"),
        ('{"format":1,"replicas":["r1"]}\n{"first":0}', "line 2 is not of a recorded run"),
        ('{"format":1,"replicas":["r1"]}\n{"first":0,"end":0,"replicas":[]}', "line 2: 0 replicas"),
    ],
)
def test_a_file_that_is_no_recorded_run_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(text)
    with pytest.raises(BadInput, match=said):
        bridge_file(file)


def test_every_way_is_one_that_the_packed_model_can_go(tmp_path: Path) -> None:
    """The search for a way is made short by `is_between`; walking it again needs the model alone."""
    file = tmp_path / "run.jsonl"
    bridge_seeds(7, 8, record=file)
    head, outlines = read_outlines(file)
    follower, before, walked = Follower(CLEANING, len(head.replicas)), next(outlines), 0
    for after in outlines:
        way = follower.way(before, after)
        assert way is not None
        assert follower.state(after) in goals(follower, follower.state(before), way)
        before, walked = after, walked + len(way)
    assert walked > 50


def goals(follower: Follower, start: int, way: tuple[str, ...]) -> set[int]:
    """Return the states that a sequence of actions leads to."""
    states = {start}
    for action in way:
        states = {after for state in states for name, after in steps(follower, state) if name == action}
    return {CLEANING.seen_of(state, follower.limits) for state in states}


def steps(follower: Follower, state: int) -> list[tuple[str, int]]:
    out, by = [0] * mapping.FAN_OUT, [0] * mapping.FAN_OUT
    count = CLEANING.model.successors(state, follower.limits, out, by, 0)
    return [(CLEANING.model.actions[by[each] >> 8], out[each]) for each in range(count)]


def test_an_outline_in_which_an_invariant_does_not_hold_is_wrong_though_a_way_leads_there() -> None:
    follower = Follower(CLEANING, 1)
    assert follower.broken(Outline(2, 3, (Standing(1),))) == ("ValidLogPointer",)
    assert follower.broken(Outline(2, 3, (Standing(2),))) == ()
    lost = Outline(0, 0, (Standing(is_lost=True),))
    assert wrong_step(follower, lost, Outline(0, 1, lost.replicas)) == (
        "BRIDGE: OneIsGood of mended/truncate-log does not hold"
    )


def test_a_search_for_a_way_that_ends_at_its_limit_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "STATES_MAX", 3)
    follower = Follower(CLEANING, 1)
    with pytest.raises(Undecided):
        follower.way(Outline(0, 9, (Standing(0),)), Outline(0, 9, (Standing(9),)))
    found = bridge_seeds(7, 8)
    assert found.undecided.startswith("seed 7: no way found among")
    assert found.violations == []


def test_what_can_not_be_followed_is_refused() -> None:
    with pytest.raises(BadInput, match="goes on below a second parent"):
        bridge_model("roll_two")
    with pytest.raises(BadInput, match="no mapping 'nonsense'"):
        bridge_model("clean_clean", onto="nonsense")
    with pytest.raises(BadInput, match="there is no such model"):
        bridge_model("nonsense")
    with pytest.raises(BadInput, match="no mutant 'nonsense'"):
        bridge_model("clean_clean", "nonsense")
    with pytest.raises(BadInput, match="takes one run"):
        bridge_seeds(1, 3, record=Path("run.jsonl"))
