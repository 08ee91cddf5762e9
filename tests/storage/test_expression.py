from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput
from replitree.storage.schema.columns import Column
from replitree.storage.schema.types import format_type, parse_type
from replitree.storage.sql.expression import Expression, columns_of, condition_values, evaluate
from replitree.storage.sql.expression_kernels import NoValueError, calculate, cast_values
from replitree.storage.sql.expression_parser import parse_assignment
from replitree.storage.sql.expression_types import adjusted_decimal, arithmetic_type, can_assign, can_cast, common_type
from replitree.storage.sql.predicate_parser import parse_predicate
from tests.storage.expressions import DEFINITION, VALUES, batch
from tests.storage.support import PLAIN_TYPES, arrays


def parsed(text: str, target: str = "string") -> Expression:
    return parse_assignment(text, Column(99, "target", format_type(parse_type(target))), DEFINITION)


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        one_nan, signs = math.isnan(found), math.copysign(1, found) == math.copysign(1, expected)
        return math.isnan(expected) if one_nan else found == expected and signs
    return bool(found == expected)


CASES = [pytest.param(*case, id=f"{case[0]} as {case[1]}") for case in VALUES]


@pytest.mark.parametrize(("text", "target", "expected"), CASES)
def test_value_of_an_expression(text: str, target: str, expected: list[Any] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises((BadInput, NoValueError), match=expected):
            evaluate(parsed(text, target), batch())
        return
    found = evaluate(parsed(text, target), batch())
    assert found.type == parse_type(target)
    assert all(map(same, found.to_pylist(), expected)), found.to_pylist()


@pytest.mark.parametrize(("text", "target", "expected"), [case for case in CASES if isinstance(case.values[2], list)])
def test_value_does_not_depend_on_offsets_and_neighbours(text: str, target: str, expected: list[Any]) -> None:
    node, rows = parsed(text, target), batch()
    needed = rows.select(sorted(columns_of(node)) or ["k"])
    for start in range(rows.num_rows + 1):
        found = evaluate(node, needed.slice(start)).to_pylist()
        assert all(map(same, found, expected[start:]))
        assert len(found) == rows.num_rows - start


# --- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target", "problem"),
    [
        ("now()", "timestamp", "not the same on every replica"),
        ("current_timestamp", "timestamp", "not the same on every replica"),
        ("current_date()", "date", "not the same on every replica"),
        ("k + rand()", "double", "not the same on every replica"),
        ("uuid()", "string", "not the same on every replica"),
        ("(select max(k) from t)", "bigint", "one row"),
        ("max(k)", "bigint", "not understood"),
        ("substring(s, 1, 2)", "string", "not understood"),
        ("try_cast(s as int)", "int", "not understood"),
        ("trim('x' from s)", "string", "not understood"),
        ("kk", "bigint", "no column 'kk'"),
        ("r.q", "bigint", "no field 'q'"),
        ("s + 1", "bigint", "can't calculate string"),
        ("d + 1", "date", "can't calculate date"),
        ("b + 1", "int", "can't calculate boolean"),
        ("-s", "string", "no negative"),
        ("upper(k)", "string", "takes a string"),
        ("length(l)", "int", "takes a string"),
        ("s || v", "string", "not joined"),
        ("s || z", "string", "not joined"),
        ("s || l", "string", "not joined"),
        ("coalesce(k, s)", "bigint", "no type in common"),
        ("coalesce(t, n)", "timestamp", "no type in common"),
        ("coalesce(w, 12345678901234567890123456789.5)", "decimal(38,10)", "no type in common"),
        ("case when b then k else s end", "bigint", "no type in common"),
        ("nullif(k, s)", "bigint", "does not compare"),
        ("nullif(l, l)", "array<bigint>", "does not compare"),
        ("'1'", "int", "use cast"),
        ("'2018-01-01'", "date", "use cast"),
        ("k", "date", "is a date column, and this is a bigint"),
        ("v", "decimal(12,2)", "this is a double"),
        ("v", "string", "this is a double"),
        ("m", "string", "this is a decimal"),
        ("cast(v as string)", "string", "not understood"),
        ("cast(s as timestamp)", "timestamp", "not understood"),
        ("l", "string", "this is a array<bigint>"),
        ("date'2018-02-30'", "date", "not a date"),
        ("timestamp_ntz'2018-01-01 00:00:00+01:00'", "timestamp_ntz", "no time zone"),
        ("9" * 39, "decimal(38,0)", "38 digits"),
        ("1e400", "double", "beyond every number"),
        ("1e5.5", "double", "is not a number"),
        (".05.05", "double", "is not a number"),
        ("0 % .05.05", "double", "is not a number"),
        ("k +", "bigint", "can't read"),
        ("", "bigint", "can't read"),
        ("k; delete from t", "bigint", "can't read|not understood"),
        ("'" + "x" * 100_001 + "'", "string", "100,000 characters"),
        ("1+" * 20_000 + "1", "bigint", "nested too deeply|can't read"),
    ],
)
def test_what_can_not_be_used_is_refused(text: str, target: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parsed(text, target)


def test_an_error_names_the_expression() -> None:
    with pytest.raises(BadInput, match=r"can't use the expression 'k \+ rand\(\)'"):
        parsed("k + rand()")


# --- types ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sign", "one", "other", "expected"),
    [  # from Spark's DecimalType and its coercion of types
        ("+", "decimal(12,2)", "decimal(5,4)", "decimal(15,4)"),
        ("+", "decimal(38,10)", "decimal(38,10)", "decimal(38,9)"),
        ("*", "decimal(12,2)", "decimal(12,2)", "decimal(25,4)"),
        ("*", "decimal(38,18)", "decimal(10,5)", "decimal(38,12)"),
        ("/", "decimal(12,2)", "decimal(5,1)", "decimal(19,8)"),
        ("/", "decimal(38,18)", "decimal(38,18)", "decimal(38,6)"),
        ("%", "decimal(12,2)", "decimal(5,3)", "decimal(5,3)"),
        ("+", "tinyint", "decimal(5,2)", "decimal(6,2)"),
        ("+", "tinyint", "smallint", "smallint"),
        ("/", "tinyint", "tinyint", "double"),
        ("+", "float", "int", "double"),
        ("+", "float", "float", "float"),
        ("/", "float", "float", "double"),
        ("*", "double", "decimal(5,2)", "double"),
    ],
)
def test_type_of_a_calculation(sign: str, one: str, other: str, expected: str) -> None:
    assert arithmetic_type(sign, parse_type(one), parse_type(other)) == parse_type(expected)


@given(st.integers(1, 77), st.data())
def test_adjusted_decimals_are_decimals(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(max(0, precision - 38), min(precision, 76)))
    found = adjusted_decimal(precision, scale)
    assert 1 <= found.precision <= 38
    assert 0 <= found.scale <= scale


@given(st.sampled_from(PLAIN_TYPES), st.sampled_from(PLAIN_TYPES))
def test_common_type_does_not_depend_on_the_order(one: pa.DataType, other: pa.DataType) -> None:
    assert common_type(one, other) == common_type(other, one)
    common = common_type(one, other)
    if common is not None and not (pa.types.is_floating(one) and pa.types.is_decimal(common)):
        assert can_cast(one, common)
        assert can_assign(one, common)


@given(st.data(), st.sampled_from(PLAIN_TYPES), st.sampled_from(PLAIN_TYPES))
def test_every_cast_gives_its_type_or_says_why_not(data: st.DataObject, one: pa.DataType, other: pa.DataType) -> None:
    if not can_cast(one, other):
        return
    values = data.draw(arrays(one))
    try:
        found = cast_values(values, other)
    except NoValueError:
        return
    found.validate(full=True)
    assert found.type == other
    assert found.is_valid().to_pylist() == values.is_valid().to_pylist()


FRACTIONS = [pa.decimal128(2, 2), pa.decimal128(38, 38), pa.decimal128(38, 18), pa.decimal128(1, 0)]
NUMBERS = [*(t for t in PLAIN_TYPES if arithmetic_type("+", t, t) is not None), *FRACTIONS]


@given(st.data(), st.sampled_from("+-*/%"), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_every_calculation_gives_its_type_or_says_why_not(
    data: st.DataObject, sign: str, one: pa.DataType, other: pa.DataType
) -> None:
    pairs = data.draw(arrays(pa.struct([("a", one), ("b", other)]), max_size=6))
    left, right = pairs.drop_null().flatten()
    result = arithmetic_type(sign, one, other)
    assert result is not None
    try:
        found = calculate(sign, left, right, result)
    except NoValueError:
        return
    found.validate(full=True)
    assert found.type == result
    assert len(found) == len(left)
    either = [a is None or b is None for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)]
    assert [value is None for value in found.to_pylist()] == either


@pytest.mark.parametrize("kind", [pa.int8(), pa.decimal128(3, 0)], ids=str)
def test_a_number_below_1_is_left_by_every_whole_divisor(kind: pa.DataType) -> None:
    one = pa.array([Decimal("0.25"), Decimal("-0.99"), None, Decimal("0.50")], pa.decimal128(2, 2))
    other = pa.array([Decimal(3), Decimal(-1), Decimal(2), None], pa.decimal128(3, 0)).cast(kind)
    result = arithmetic_type("%", one.type, kind)
    assert result is not None
    assert calculate("%", one, other, result).to_pylist() == [Decimal("0.25"), Decimal("-0.99"), None, None]


@given(st.data(), st.sampled_from("+-*%"))
def test_integers_are_calculated_as_whole_numbers_are(data: st.DataObject, sign: str) -> None:
    numbers = st.one_of(st.integers(-20, 20), st.sampled_from([-(2**63), 2**63 - 1, -(2**31)]))
    one, other = data.draw(numbers), data.draw(numbers)
    if sign == "%" and other == 0:
        return
    quotient = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1) if other else 0
    expected = {"+": one + other, "-": one - other, "*": one * other, "%": one - quotient * other}[sign]
    left, right = pa.array([one], pa.int64()), pa.array([other], pa.int64())
    if -(2**63) <= expected < 2**63:
        assert calculate(sign, left, right, pa.int64()).to_pylist() == [expected]
    else:
        with pytest.raises(NoValueError, match="does not fit"):
            calculate(sign, left, right, pa.int64())


# --- conditions ---------------------------------------------------------------------------------------------------------------


def test_a_condition_has_three_values_and_a_column_that_may_not_be_null_is_looked_at_all_the_same() -> None:
    predicate = parse_predicate("k > 0 and (b or v is null)", DEFINITION)
    assert condition_values(predicate, batch()).to_pylist() == [True, False, False, None]
    strict = pa.record_batch([pa.array([1, 2])], schema=pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    for text, expected in (("k is null", [False, False]), ("k is not null", [True, True]), ("true", [True, True])):
        assert condition_values(parse_predicate(text, DEFINITION), strict).to_pylist() == expected


@pytest.mark.parametrize("text", ["true", "false", "null", "1 = k and null"])
def test_a_constant_condition_has_as_many_values_as_rows(text: str) -> None:
    predicate = parse_predicate(text, DEFINITION)
    for rows in (0, 1, 4):
        assert len(condition_values(predicate, batch().slice(0, rows))) == rows
