"""The map of a sharded table: as many buckets as the weights ask for, and never a move too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations, groupby, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from replitree.errors import BadInput, UnsupportedFormat
from replitree.protocol.sharded.shard_map import (
    BUCKETS_MAX,
    SHARDS_MAX,
    WEIGHT_MAX,
    Bucket,
    OwnerRun,
    Shard,
    ShardMap,
    ShardWeight,
    decode_map,
    encode_map,
    first_map,
    handed_over,
    made_anew,
    moving,
    rebalanced,
    turned_back,
    with_views,
    without_moves,
    without_shard,
)

Weights = Mapping[Shard, int]


def weights_of(*pairs: tuple[int, int]) -> Weights:
    return {Shard(shard): weight for shard, weight in pairs}


def apportionments(weights: Weights, buckets: int) -> Iterator[Counter[Shard]]:
    """Give every way in which the method of largest remainders, by its definition, can distribute the buckets."""
    quotas = {shard: Fraction(weight * buckets, sum(weights.values())) for shard, weight in weights.items()}
    floors = {shard: int(quota) for shard, quota in quotas.items()}
    left = buckets - sum(floors.values())
    for chosen in combinations(sorted(weights), left):
        others = [quotas[shard] - floors[shard] for shard in weights if shard not in chosen]
        if all(quotas[shard] - floors[shard] >= max(others, default=0) for shard in chosen):
            yield Counter(floors) + Counter(chosen)


def moved(before: ShardMap, after: ShardMap) -> int:
    return sum(one != other for one, other in zip(before.owners, after.owners, strict=True))


SHARD_NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 7, 9_999]).map(Shard)
WEIGHTS = st.dictionaries(SHARD_NUMBERS, st.integers(0, 5) | st.just(WEIGHT_MAX), min_size=1).filter(
    lambda weights: any(weights.values())
)
BUCKETS = st.integers(0, 8).map(lambda exponent: 1 << exponent)


@st.composite
def maps(draw: st.DrawFn) -> ShardMap:
    """Draw any map, also one that its weights do not ask for, as it is while buckets move."""
    buckets, weights = draw(BUCKETS), draw(WEIGHTS)
    found = first_map(["id"], weights, buckets)
    for after in draw(st.lists(WEIGHTS, max_size=3)):
        found = rebalanced(found, {**dict.fromkeys(found.shards, 0), **after})
    return found


# --- how many buckets each shard owns ---------------------------------------------------------------------------------


def test_shards_of_equal_weight_own_equal_ranges() -> None:
    found = first_map(["id"], weights_of((0, 1), (1, 1)))
    assert [(run.shard, run.buckets) for run in found.owner] == [(0, 128), (1, 128)]
    assert (found.key, found.buckets, found.hash, found.moves, found.format) == (("id",), 256, "xxh64-42", (), 1)


def test_what_is_left_over_goes_to_the_largest_remainders() -> None:
    # 16 * 3/11, 16 * 7/11 and 16 * 1/11 are 4.36, 10.18 and 1.45
    found = first_map(["id"], weights_of((1, 3), (2, 7), (3, 1)), 16)
    assert Counter(found.owners) == {1: 4, 2: 10, 3: 2}


def test_a_shard_of_weight_0_is_in_the_map_and_owns_nothing() -> None:
    found = first_map(["id"], weights_of((0, 1), (5, 0)), 4)
    assert (found.shards, found.owners) == ((0, 5), (0, 0, 0, 0))


@given(WEIGHTS, BUCKETS)
def test_a_first_map_has_the_numbers_of_largest_remainders(weights: Weights, buckets: int) -> None:
    found = first_map(["id"], weights, buckets)
    assert Counter(found.owners) in list(apportionments(weights, buckets))
    assert len(found.owner) <= len(weights), "each shard owns one range"


# --- moves ------------------------------------------------------------------------------------------------------------


def test_a_shard_that_is_added_gets_buckets_from_all_others() -> None:
    before = first_map(["id"], weights_of((0, 1), (1, 1)))
    after = rebalanced(before, weights_of((0, 1), (1, 1), (2, 1)))
    assert [(run.shard, run.buckets) for run in after.owner] == [(0, 86), (2, 42), (1, 85), (2, 43)]
    assert moved(before, after) == 85


def test_a_shard_that_owns_nothing_leaves_the_map_and_its_number_is_never_used_again() -> None:
    first = first_map(["id"], {Shard(0): 1, Shard(1): 1, Shard(2): 1}, 8)
    emptied = rebalanced(first, {Shard(0): 1, Shard(1): 1, Shard(2): 0})
    assert (first.since, first.next_shard) == (0, 3)
    left = without_shard(emptied, Shard(2), 17)
    assert (left.shards, left.since, left.next_shard) == ((0, 1), 17, 3)
    grown = moving(left, rebalanced(left, {Shard(0): 1, Shard(1): 1, Shard(3): 1}))
    assert (grown.since, grown.next_shard, grown.format) == (17, 4, 4)
    assert decode_map(encode_map(grown), "here") == grown
    again = without_shard(rebalanced(without_moves(grown), {Shard(0): 0, Shard(1): 1, Shard(3): 1}), Shard(0), 9)
    assert (again.shards, again.since, again.next_shard) == ((1, 3), 17, 4)
    assert (made_anew(again).since, made_anew(again).next_shard) == (0, 4)


def test_the_buckets_of_a_shard_that_is_removed_go_to_the_others() -> None:
    before = first_map(["id"], weights_of((0, 1), (1, 1), (2, 2)), 8)
    after = rebalanced(before, weights_of((0, 1), (1, 1)))
    assert (after.owners, after.shards) == ((0, 0, 1, 1, 0, 0, 1, 1), (0, 1))


def test_a_shard_that_is_replaced_gives_its_buckets_to_its_successor_only() -> None:
    before = first_map(["id"], weights_of((5, 1), (6, 1), (7, 1)))
    after = rebalanced(before, weights_of((2, 1), (5, 1), (6, 1)))
    # the one bucket that is left over stays with the shard that has it, though another one has a lower number
    assert moved(before, after) == Counter(before.owners)[Shard(7)] == 85


@given(maps(), WEIGHTS)
def test_rebalancing_moves_the_fewest_buckets(before: ShardMap, weights: Weights) -> None:
    after = rebalanced(before, weights)
    wanted, owned = Counter(after.owners), Counter(before.owners)
    choices = list(apportionments(weights, before.buckets))
    assert wanted in choices
    # whatever the numbers are, a shard that lacks buckets must get as many: so many moves are the least that leads there
    assert moved(before, after) == min(sum((choice - owned).values()) for choice in choices)
    assert moved(before, after) == sum((wanted - owned).values())
    assert after.shards == tuple(sorted(weights))
    assert (after.key, after.buckets) == (before.key, before.buckets)
    assert rebalanced(after, weights) == after


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 2, 4), (3, 3, 1), (0, 1, 2), (1, 0, 0), (5, 3, 0)])
def test_no_assignment_that_fits_the_weights_is_nearer(weights: tuple[int, ...]) -> None:
    buckets, by_shard = 4, weights_of(*enumerate(weights))
    choices = list(apportionments(by_shard, buckets))
    assignments = list(product(by_shard, repeat=buckets))
    targets = [owners for owners in assignments if Counter(owners) in choices]
    for owners in assignments:
        before = map_of(owners)
        least = min(sum(one != other for one, other in zip(owners, target, strict=True)) for target in targets)
        assert moved(before, rebalanced(before, by_shard)) == least


def map_of(owners: tuple[Shard, ...]) -> ShardMap:
    runs = tuple(OwnerRun(shard, len(list(run))) for shard, run in groupby(owners))
    weights = tuple(ShardWeight(shard, 1) for shard in sorted(set(owners)))
    return ShardMap(len(owners), ("id",), runs, weights)


def test_shards_of_buckets_are_told_once_and_in_order() -> None:
    found = first_map(["id"], weights_of((3, 1), (1, 1), (2, 2)), 8)
    assert found.owners == (1, 1, 2, 2, 2, 2, 3, 3)
    assert found.shards_of([Bucket(7), Bucket(0), Bucket(6), Bucket(1)]) == (1, 3)
    assert found.shards_of([]) == ()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        ({}, "one at least above"),
        ({0: 0, 1: 0}, "one at least above"),
        ({0: 1, 1: -1}, "none below 0"),
        ({0: 0.5}, "whole numbers"),
        ({0: WEIGHT_MAX + 1}, "a shard's weight is 0 to 1,000,000"),
        ({-1: 1}, "a shard's number is 0 to 9,999"),
        ({10_000: 1}, "a shard's number is 0 to 9,999"),
        (dict.fromkeys(range(SHARDS_MAX + 1), 1), "1 to 256 shards"),
    ],
)
def test_weights_that_no_table_can_have_are_refused(weights: Weights, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        first_map(["id"], weights)
    with pytest.raises(BadInput, match=problem):
        rebalanced(first_map(["id"], {Shard(0): 1}), weights)


@pytest.mark.parametrize("buckets", [-2, 0, 3, 255, 2 * BUCKETS_MAX, 1 << 40])
def test_a_number_of_buckets_that_is_no_power_of_two_is_refused(buckets: int) -> None:
    with pytest.raises(BadInput, match="power of two up to 65,536"):
        first_map(["id"], {Shard(0): 1}, buckets)


@pytest.mark.parametrize("key", [[], ["a", "a"], list("abcdefghi")])
def test_a_key_of_no_or_equal_or_too_many_columns_is_refused(key: list[str]) -> None:
    with pytest.raises(BadInput, match="a key has 1 to 8 different columns"):
        first_map(key, {Shard(0): 1})


# --- bytes ------------------------------------------------------------------------------------------------------------


@given(maps())
def test_a_map_is_read_as_it_was_written(value: ShardMap) -> None:
    assert decode_map(encode_map(value), "here") == value


def test_the_largest_map_fits_into_a_node() -> None:
    wide = first_map(
        [letter * 100 for letter in "abcdefgh"], {Shard(9_999 - number): 1 for number in range(SHARDS_MAX)}, BUCKETS_MAX
    )
    # the worst runs that there can be: no two neighbouring buckets have one owner
    shards = wide.shards
    runs = ",".join(f"[{shards[bucket % SHARDS_MAX]},1]" for bucket in range(BUCKETS_MAX))
    raw = encode_map(wide)
    head, _, rest = raw.partition(b'"owner":[')
    worst = head + b'"owner":[' + runs.encode() + b"]" + rest.partition(b"]]")[2]
    assert len(decode_map(worst, "here").owner) == BUCKETS_MAX
    assert len(worst) < 600_000


GOOD = (
    b'{"buckets":4,"key":["id"],"owner":[[0,3],[2,1]],"weights":[[0,3],[2,1]],"hash":"xxh64-42","moves":[],"format":1}'
)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"format":1', b'"format":5', "has format 5, this replitree knows 4; upgrade it"),
        (b'"format":1', b'"format":4', "another format than one without"),
        (b'"format":1', b'"removed":[7,1],"format":4', "are not below the next one"),
        (b'"format":1', b'"removed":[-1,2],"format":4', "are not below the next one"),
        (b'"format":1', b'"format":3', "another format than one without"),
        (b'"format":1', b'"views":0,"format":1', "so has one with views"),
        (b'"format":1', b'"format":2', "another format than one without"),
        (b'"buckets":4', b'"buckets":6', "power of two"),
        (b'"buckets":4', b'"buckets":8', "the runs do not cover the buckets"),
        (b'"xxh64-42"', b'"xxh64-0"', "Invalid enum value 'xxh64-0'"),
        (b'["id"]', b"[]", "a key has 1 to 8 different columns"),
        (b'"moves":[]', b'"moves":[{"id":1}]', r"\$\.moves"),
        (b'"owner":[[0,3],[2,1]]', b'"owner":[[0,3],[1,1]]', "a shard that the map does not have"),
        (b'"owner":[[0,3],[2,1]]', b'"owner":[[0,2],[0,1],[2,1]]', "the same owner"),
        (b'"owner":[[0,3],[2,1]]', b'"owner":[[0,5],[2,-1]]', "the runs do not cover the buckets"),
        (b'"owner":[[0,3],[2,1]]', b'"owner":[[0,1152921504606846976]]', "the runs do not cover the buckets"),
        (b'"owner":[[0,3],[2,1]]', b'"owner":[[0,3],[2,1,7]]', "length 2"),
        (b'"weights":[[0,3],[2,1]]', b'"weights":[[2,1],[0,3]]', "not in the order of their numbers"),
        (b'"weights":[[0,3],[2,1]]', b'"weights":[[0,3],[0,1],[2,1]]', "not in the order of their numbers"),
        (b'"weights":[[0,3],[2,1]]', b'"weights":[[0,0],[2,0]]', "every shard has the weight 0"),
        (b'"weights":[[0,3],[2,1]]', b'"weights":[]', "1 to 256 shards"),
        (b"}", b"", "can't be read"),
        (b'"id"', b'"\xff"', "not UTF-8"),
    ],
)
def test_a_damaged_or_newer_map_is_refused(old: bytes, new: bytes, problem: str) -> None:
    assert encode_map(decode_map(GOOD, "map")) == GOOD
    damaged = GOOD.replace(old, new)
    assert damaged != GOOD
    with pytest.raises(UnsupportedFormat, match=f"^sharded/t/map .*{problem}"):
        decode_map(damaged, "sharded/t/map")


def test_a_map_with_views_has_a_format_of_its_own_also_while_buckets_move() -> None:
    before = first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8)
    viewed = with_views(before, 3)
    assert (viewed.format, decode_map(encode_map(viewed), "map")) == (3, viewed)
    moves = moving(viewed, rebalanced(viewed, {Shard(0): 1, Shard(1): 1, Shard(2): 2}))
    assert (moves.views, moves.format, turned_back(moves).views) == (3, 3, 3)
    assert with_views(moves, UNSET).format == 2
    assert without_moves(moves).format == 3
    assert with_views(viewed, UNSET) == before
    assert b"views" not in encode_map(before)


# --- moves ------------------------------------------------------------------------------------------------------------------

MOVING = GOOD.replace(b'"moves":[],"format":1', b'"moves":[[0,2,[[3,1]]]],"format":2')


@pytest.mark.parametrize(
    ("moves", "problem"),
    [
        (b"[[0,2,[]]]", "a move has no buckets"),
        (b"[[0,2,[[3,1],[3,1]]]]", "two moves have the same"),
        (b"[[0,2,[[3,2]]]]", "buckets that there are not"),
        (b"[[0,2,[[-1,1]]]]", "buckets that there are not"),
        (b"[[0,2,[[0,1152921504606846976]]]]", "buckets that there are not"),
        (b"[[0,2,[[2,1]]]]", "not owned by the shard to which it moves"),
        (b"[[2,2,[[3,1]]]]", "not between different shards"),
        (b"[[1,2,[[3,1]]]]", "not between different shards"),
        (b"[[0,2,[[3,1]]],[0,2,[[3,1]]]]", "not between different shards"),
    ],
)
def test_a_map_with_wrong_moves_is_refused(moves: bytes, problem: str) -> None:
    assert encode_map(decode_map(MOVING, "map")) == MOVING
    with pytest.raises(UnsupportedFormat, match=problem):
        decode_map(MOVING.replace(b"[[0,2,[[3,1]]]]", moves), "map")


def test_what_moves_is_read_at_both_shards_until_it_has_moved() -> None:
    before = first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8)
    found = moving(before, rebalanced(before, {Shard(0): 1, Shard(1): 1, Shard(2): 2}))
    assert [(move.source, move.target, move.buckets) for move in found.moves] == [(0, 2, (2, 3)), (1, 2, (6, 7))]
    assert (found.owners[2], found.shards_of([Bucket(2)])) == (2, (0, 2))
    assert found.shards_of([Bucket(0)]) == (0,)
    assert decode_map(encode_map(found), "map") == found
    assert without_moves(found).shards_of([Bucket(2)]) == (2,)


def test_moves_that_turn_back_give_each_bucket_its_old_owner() -> None:
    before = first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8)
    found = moving(before, rebalanced(before, {Shard(0): 1, Shard(1): 1, Shard(2): 2}))
    back = turned_back(found)
    assert back.owners == before.owners
    assert [(move.source, move.target, move.buckets) for move in back.moves] == [(2, 0, (2, 3)), (2, 1, (6, 7))]
    assert turned_back(back) == found
    assert back.shards_of([Bucket(2)]) == (0, 2)


def test_a_map_in_which_no_owner_changes_has_no_moves() -> None:
    before = first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8)
    assert moving(before, rebalanced(before, {Shard(0): 1, Shard(1): 1})) == before


def test_buckets_are_handed_over_to_shards_that_the_table_has() -> None:
    before = first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8)
    assert moving(before, handed_over(before, [Bucket(0), Bucket(2)], Shard(1))).owners == (1, 0, 1, 0, 1, 1, 1, 1)
    with pytest.raises(BadInput, match="the shards 0, 1, not 2"):
        handed_over(before, [Bucket(0)], Shard(2))
    with pytest.raises(BadInput, match="the buckets 0 to 7, not 8"):
        handed_over(before, [Bucket(8)], Shard(1))
