from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replitree.errors import BadInput
from replitree.storage.parts.conform import conform
from replitree.storage.parts.manifest import ColumnStats, PartManifest
from replitree.storage.parts.statistics import table_statistics
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.partition import split_by_partition
from replitree.storage.sql.predicate import interval_outcomes, like_prefix
from replitree.storage.sql.predicate_parser import parse_predicate
from tests.storage.support import bench_table
from tests.storage.test_manifest import manifest

DEFINITION = define_table(
    "t",
    "k bigint, i tinyint, v double, m decimal(6,2), s string, d date, t timestamp, n timestamp_ntz, b boolean, y binary, "
    "r struct<a: int, Deep: struct<x: string>>",
    order_by=["k", "i", "v", "m", "s", "d", "t", "n", "b", "y"],
    partition_by=["bucket(4,k)"],
)

Row = dict[str, Any]
Truth = bool | None
Condition = tuple[str, Callable[[Row], Truth]]


# --- an interpreter of SQL, value by value ----------------------------------------------------------------------------


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _rank(value: Any) -> Any:
    """Make NaN the greatest number, equal to itself."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def _compared(column: str, sign: str, value: Any) -> Callable[[Row], Truth]:
    def truth(row: Row) -> Truth:
        found = row[column]
        if found is None or value is None:
            return None
        if isinstance(found, float):
            return OPERATORS[sign](_rank(found), _rank(float(value)))
        return OPERATORS[sign](found, value)

    return truth


def _not(inner: Callable[[Row], Truth]) -> Callable[[Row], Truth]:
    return lambda row: None if (truth := inner(row)) is None else not truth


def _all(inner: list[Callable[[Row], Truth]]) -> Callable[[Row], Truth]:
    def truth(row: Row) -> Truth:
        truths = [one(row) for one in inner]
        return False if False in truths else None if None in truths else True

    return truth


def _any(inner: list[Callable[[Row], Truth]]) -> Callable[[Row], Truth]:
    return _not(_all([_not(one) for one in inner]))


# --- random conditions ------------------------------------------------------------------------------------------------

NUMBERS = st.integers(-4, 4) | st.sampled_from(
    [Decimal("1.5"), Decimal("-0.25"), Decimal("1.005"), 2**70, -(2**70), 127, 128]
)
DATES = st.integers(0, 3).map(lambda n: dt.date(2018, 1, 1) + dt.timedelta(days=n))
MOMENTS = st.integers(0, 40).map(
    lambda n: dt.datetime.fromisoformat("2018-01-01") + dt.timedelta(hours=n, microseconds=n % 3)
)
STRINGS = st.sampled_from(["", "a", "ab", "abc", "b", "it's", "a%", "ä", "z" * 70])


def values() -> dict[str, st.SearchStrategy[Any]]:
    floats = st.sampled_from([-1.5, -0.0, 0.0, 1.0, 1.5, 2.0, math.inf, -math.inf, math.nan])
    return {
        "k": st.integers(-4, 4),
        "i": st.sampled_from([-128, -1, 0, 1, 2, 127]),
        "v": floats,
        "m": st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("1.00"), Decimal("1.50"), Decimal("9999.99")]),
        "s": STRINGS,
        "d": DATES,
        "n": MOMENTS,
        "b": st.booleans(),
    }


def _literal(column: str) -> st.SearchStrategy[tuple[str, Any]]:
    if column in "kim":
        return NUMBERS.map(lambda n: (str(n), n))
    if column == "v":
        special = st.sampled_from([("double('NaN')", math.nan), ("double('-Infinity')", -math.inf), ("1.5D", 1.5)])
        return NUMBERS.map(lambda n: (str(n), n)) | special
    if column == "s":
        return STRINGS.map(lambda text: ("'" + text.replace("'", "\\'") + "'", text))
    if column == "d":
        return DATES.flatmap(lambda day: st.sampled_from([(f"date'{day}'", day), (f"'{day}'", day)]))
    if column == "n":
        return MOMENTS.flatmap(lambda m: st.sampled_from([(f"timestamp '{m}'", m), (f"'{m}'", m)]))
    return st.booleans().map(lambda truth: (str(truth), truth))


@st.composite
def _leaf(draw: st.DrawFn) -> Condition:
    column = draw(st.sampled_from(sorted(values())))
    kind = draw(st.sampled_from(["compare", "compare", "flipped", "between", "in", "null"]))
    (text, value), (text2, value2) = draw(_literal(column)), draw(_literal(column))
    sign = draw(st.sampled_from(sorted(OPERATORS)))
    if kind == "compare":
        return f"{column} {sign} {text}", _compared(column, sign, value)
    if kind == "flipped":
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        return f"{text} {flipped} {column.upper()}", _compared(column, sign, value)
    if kind == "between":
        return f"{column} between {text} and {text2}", _all(
            [_compared(column, ">=", value), _compared(column, "<=", value2)]
        )
    if kind == "in":
        return f"{column} in ({text}, {text2})", _any([_compared(column, "=", value), _compared(column, "=", value2)])
    return f"{column} is null", lambda row: row[column] is None


def _joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    pairs = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        inner.map(lambda one: (f"not ({one[0]})", _not(one[1]))),
        pairs.map(lambda many: (" and ".join(f"({one[0]})" for one in many), _all([one[1] for one in many]))),
        pairs.map(lambda many: (" or ".join(f"({one[0]})" for one in many), _any([one[1] for one in many]))),
    )


CONDITIONS = st.recursive(_leaf(), _joined, max_leaves=5)
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in values().items()}), max_size=8)


@given(CONDITIONS, ROWS)
@example(("v >= 2", _compared("v", ">=", 2)), [{**dict.fromkeys(values()), "v": math.nan}])
@example(("not v = double('NaN')", _compared("v", "!=", math.nan)), [{**dict.fromkeys(values()), "v": -1.5}])
def test_a_condition_keeps_the_rows_that_sql_keeps_and_prunes_no_part_with_one(
    condition: Condition, rows: list[Row]
) -> None:
    text, truth = condition
    predicate = parse_predicate(text, DEFINITION)
    table = conform(rows or {"k": []}, DEFINITION)
    expected = [number for number, row in enumerate(rows) if truth(row) is True]
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    assert ds.dataset(numbered).to_table(filter=predicate.to_arrow()).column("row").to_pylist() == expected
    for part in split_by_partition(numbered, DEFINITION):
        wanted = set(part.rows.column("row").to_pylist()) & set(expected)
        assert predicate.may_match(_manifest_of(part.rows, part.values)) or not wanted


def _manifest_of(table: pa.Table, values: Any = (None,)) -> PartManifest:
    stats = table_statistics(table, DEFINITION)
    return manifest(rows=table.num_rows, partition_values=values, columns=stats)


# --- pruning ----------------------------------------------------------------------------------------------------------


STATS = {
    "k": ColumnStats("int64", 10, 20),
    "s": ColumnStats("string", "berlin", "bonn", 1),
    "d": ColumnStats("date", 17532, 17562),
    "v": ColumnStats("double", nulls=3),
    "m": ColumnStats("decimal(6,2)", "1.00", "2.00"),
    "b": ColumnStats("boolean", False, False),
}


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("k = 15", True),
        ("k = 9", False),
        ("k < 10", False),
        ("k <= 10", True),
        ("k > 20", False),
        ("not k <= 20", False),
        ("k between 21 and 30", False),
        ("k in (1, 2, 30)", False),
        ("k in (1, 12)", True),
        ("k is null", False),
        ("k is not null", True),
        ("k <=> null", False),
        ("k <=> 30", False),
        ("k = null", False),
        ("k > 9.5 and k < 9.9", False),
        ("k < 1e30", True),
        ("k > 1e30", False),
        ("s like 'ber%'", True),
        ("s like 'c%'", False),
        ("s like '%x'", True),
        ("s not like 'ber%'", True),
        ("s not like 'b%' and s like 'c%'", False),
        ("s ilike 'C%'", True),
        ("startswith(s, 'a_')", False),
        ("startswith(s, 'b')", True),
        ("s is null", True),
        ("d >= '2018-02-01'", False),
        ("d >= '2018-01-31'", True),
        ("d >= timestamp '2018-01-31 00:00:01'", False),
        ("v > 5", False),
        ("v is null", True),
        ("m = 1.005", False),
        ("m > 1.99", True),
        ("m > 2", False),
        ("b", False),
        ("not b", True),
        ("b is true", False),
        ("b is not true", True),
        ("k = 9 or v > 1", False),
        ("k = 9 or i = 1", True),
        ("k = 9 and i = 1", False),
        ("k = i", True),
        ("r.a = 1", True),
        ("true", True),
        ("false", False),
        ("null", False),
    ],
)
def test_parts_are_pruned_when_and_only_when_it_is_certain(text: str, may: bool) -> None:
    part = replace_rows(manifest(columns=STATS))
    assert parse_predicate(text, DEFINITION).may_match(part) is may


def replace_rows(part: PartManifest) -> PartManifest:
    import msgspec

    return msgspec.structs.replace(part, rows=3, partition_values=(None,))


def test_a_part_of_another_bucket_is_pruned() -> None:
    table = conform({"k": [5, 34]}, DEFINITION)
    for part in split_by_partition(table, DEFINITION):
        has = set(part.rows.column("k").to_pylist())
        for key in (5, 34):
            found = manifest(rows=1, partition_values=part.values, columns={})
            assert parse_predicate(f"k = {key}", DEFINITION).may_match(found) == (key in has)
            assert parse_predicate(f"k != {key}", DEFINITION).may_match(found)


def test_an_empty_part_has_no_wanted_row() -> None:
    assert not parse_predicate("true", DEFINITION).may_match(manifest(rows=0))


def test_statistics_of_another_type_never_prune() -> None:
    part = replace_rows(manifest(columns={"k": ColumnStats("string", "a", "b")}))
    assert parse_predicate("k = 5", DEFINITION).may_match(part)
    assert interval_outcomes(parse_predicate("k < 5", DEFINITION).node.operator, 5, "a", None)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("pattern", "prefix"), [("abc", "abc"), ("a%", "a"), ("_", ""), ("a\\%b_", "a%b"), ("a\\", "a")]
)
def test_the_plain_beginning_of_a_pattern_is_found(pattern: str, prefix: str) -> None:
    assert like_prefix(pattern) == prefix


# --- what else is understood ------------------------------------------------------------------------------------------


FEW = {
    "k": [1, 2, None],
    "i": [2, 1, 1],
    "v": [math.nan, 2.0, 1.0],
    "s": ["A_b", "a%c", None],
    "y": [b"\x00\xff", b"ab", None],
    "t": [dt.datetime(2018, 1, 1, tzinfo=dt.UTC), dt.datetime(2018, 1, 2, tzinfo=dt.UTC), None],
    "r": [{"a": 1, "Deep": {"x": "q"}}, {"a": None, "Deep": None}, None],
}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("s like 'A\\\\_%'", [0]),
        ("s like '%c'", [1]),
        ("s ilike 'a%'", [0, 1]),
        ("s not like 'A%'", [1]),
        ("s not ilike 'a%'", []),
        ("s not like 'a\\\\%%' escape '\\\\'", [0]),
        ("startswith(s, 'a%')", [1]),
        ("s like 'a\\\\%c' escape '\\\\'", [1]),
        ("y = X'00ff'", [0]),
        ("y = 'ab'", [1]),
        ("t > '2018-01-01'", [1]),
        ("t = timestamp '2018-01-01 01:00:00+01:00'", [0]),
        ("t = cast('2018-01-02' as timestamp)", [1]),
        ("t < date'2018-01-02'", [0]),
        ("r.a = 1", [0]),
        ("R.DEEP.X = 'q'", [0]),
        ("r.a is null", [1, 2]),
        ("k < i", [0]),
        ("k = v", [1]),
        ("v > k", [0]),
        ("v >= v", [0, 1, 2]),
        ("v = v", [0, 1, 2]),
        ("not v < k", [0, 1]),
        ("k in (1, null)", [0]),
        ("k not in (1, null)", []),
        ("k = '1' or k = 1", None),
        ("k = cast('1' as int)", [0]),
        ("k = -(-1)", [0]),
        ("k <=> 1", [0]),
        ("not k <=> 1", [1, 2]),
        ("k <=> null", [2]),
        ("s = 'A_' 'b'", [0]),
        ("k = 1 -- only one\n", [0]),
        ("((k = 1))", [0]),
        ("k == 2L", [1]),
    ],
)
def test_conditions_mean_what_they_mean_in_spark(text: str, rows: list[int] | None) -> None:
    if rows is None:
        with pytest.raises(BadInput):
            parse_predicate(text, DEFINITION)
        return
    table = conform(FEW, DEFINITION).append_column("row", pa.array([0, 1, 2]))
    predicate = parse_predicate(text, DEFINITION)
    assert ds.dataset(table).to_table(filter=predicate.to_arrow()).column("row").to_pylist() == rows


def test_a_predicate_knows_its_columns() -> None:
    predicate = parse_predicate("S = 'x' or (r.deep.x is null and not K in (1)) or v < k or true", DEFINITION)
    assert predicate.columns == ("k", "v", "s", "r")
    assert predicate.text.startswith("S = 'x'")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("z = 1", "no column 'z'"),
        ("r.z = 1", "r has no field 'z'"),
        ("k >", "can't read"),
        ("", "can't read"),
        ("k = 5; drop table t", "not understood"),
        ("select 1", "one row"),
        ("k + 1", "is true or false"),
        ("s + 1 = 2", "must be numbers"),
        ("length(s) = '2'", "use cast"),
        ("v div 2 = 1", "whole numbers"),
        ("isnan(s)", "takes a number"),
        ("year(d) = 2018", "use `to_df"),
        ("k + (select 1) = 2", "one row"),
        ("k + rand() > 1", "not the same on every replica"),
        ("s rlike 'x'", "use `to_df"),
        ("k = 'a'", "use a number"),
        ("s = 1", "in quotes"),
        ("b = 1", "true or false"),
        ("d = 'yesterday'", "2018-01-31"),
        ("t = '2018-13-01'", "is not a timestamp"),
        ("n = '2018-01-01T00:00:00+01:00'", "no time zone"),
        ("d = 5", "use a date"),
        ("k in (select 1)", "it can't select others"),
        ("k between symmetric 2 and 1", "symmetric|can't read"),
        ("k = s", "don't compare"),
        ("r = 1", "not the whole"),
        ("r is true", "not the whole"),
        ("k like 'a'", "string column"),
        ("s like k", "expected a value"),
        ("upper(s) like k", "a text in quotes"),
        ("upper(s) like 'a' escape '!'", "backslash"),
        ("s like 'a' escape '!'", "backslash"),
        ("k is 5", "can't"),
        ("k = 1e999", "beyond every column"),
        ("k = -'a'", "no negative"),
        ("k = cast('x' as int)", "not a number"),
        ("k = cast('1' as binary)", "cast"),
        ("y = 5", "X'0aff'"),
        ("k = ?", "not understood"),
        ("s = 'it''s'", "for a quote in a text"),
        ('s in ("a""b")', "for a quote in a text"),
        ("(" * 3000 + "k = 1" + ")" * 3000, "too deeply"),
        ("k = 1 or " * 20_000 + "k = 2", "characters"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        parse_predicate(text, DEFINITION)


def test_many_alternatives_are_no_deep_nesting() -> None:
    predicate = parse_predicate(" or ".join(f"k = {n}" for n in range(500)), DEFINITION)
    assert not predicate.may_match(replace_rows(manifest(columns={"k": ColumnStats("int64", 1000, 2000)})))


def test_definitions_with_odd_names_are_found_in_backquotes() -> None:
    definition = define_table("t", "`a b` int, `c.d` string")
    assert parse_predicate("`A B` = 1 and `c.d` = 'x'", definition).columns == ("a b", "c.d")
    assert replace(parse_predicate("`a b` = 1", definition), text="").text == ""


@pytest.mark.parametrize(("where", "shown"), [("s = 1", "string, and 1 is not"), ("k = 'x'", "bigint, and 'x' is not")])
def test_a_literal_that_does_not_fit_is_shown_as_it_was_written(where: str, shown: str) -> None:
    with pytest.raises(BadInput, match=shown):
        parse_predicate(where, bench_table())
