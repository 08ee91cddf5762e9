from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput, UnsupportedFormat
from replitree.storage.parts.conform import conform
from replitree.storage.parts.statistics import table_statistics
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.partition import split_by_partition
from replitree.storage.sql.mutation import (
    MUTATION_BYTES_MAX,
    MutationCommand,
    MutationKind,
    cannot_touch,
    check_mutation,
    decode_mutation,
    delete_where,
    parse_mutation,
    update_where,
)
from tests.storage.test_manifest import manifest

DEFINITION = define_table(
    "orders",
    "d date, k bigint, v double, price decimal(12,2), s string not null, `odd name` int, `where` int, r struct<a: int>",
    order_by=["k"],
    partition_by="month(d)",
    table_id="0" * 32,
)


# --- statements -------------------------------------------------------------------------------------------------------------


def test_a_delete_statement_becomes_its_condition() -> None:
    found = parse_mutation("delete from ORDERS where k > 10 and s like 'a%';", DEFINITION)
    assert found == delete_where("k > 10 and s like 'a%'", DEFINITION)
    assert (found.kind, found.assignments, found.partition) == (MutationKind.DELETE, (), None)


def test_an_update_statement_becomes_assignments_in_the_order_of_the_columns() -> None:
    found = parse_mutation(
        "UPDATE orders SET `Odd Name` = 1, price = coalesce(price, (1), 2) * 1.1, V = "
        "case when v > 1D then null else -v end WHERE k in (1, 2)",
        DEFINITION,
        partition="2018-01",
    )
    assert found.kind is MutationKind.UPDATE
    assert [name for name, _ in found.assignments] == ["v", "price", "odd name"]
    assert dict(found.assignments) == {
        "v": "case when v > 1D then null else -v end",
        "price": "coalesce(price, (1), 2) * 1.1",
        "odd name": "1",
    }
    assert found.where == "k in (1, 2)"
    assert found.partition == "2018-01"
    again = update_where(dict(found.assignments), found.where, DEFINITION, partition="2018-01")
    assert again == found


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("delete from orders", "WHERE true"),
        ("update orders set v = 1", "WHERE true"),
        ("delete from others where k = 1", "about 'others'"),
        ("delete from db.orders where k = 1", "another table"),
        ("delete from orders o where k = 1", "another table"),
        ("delete from orders where k = 1 limit 5", "limit"),
        ("delete from orders where k = 1; delete from orders where k = 2", "one statement"),
        ("select 1", "one statement"),
        ("insert into orders values (1)", "one statement"),
        ("", "one statement"),
        ("drop table orders", "one statement"),
        ("delete from orders where", "can't|needs WHERE"),
        ("delete from orders where k = 1 -- all of them", "comment"),
        ("delete from orders where /* x */ k = 1", "comment"),
        ("update orders set v = 1, V = 2 where true", "set twice"),
        ("update orders set r.a = 1 where true", "whole column"),
        ("update orders set v where true", "column = value|can't read"),
        ("update orders set v = 1 from other where true", "not understood"),
        ("delete from orders where k = (select 1)", "."),
        ("delete from orders where s = 'unfinished", "can't read"),
        ("delete from orders where " + "(" * 3000 + "true" + ")" * 3000, "nested too deeply|can't read"),
    ],
)
def test_a_statement_with_more_or_less_than_a_mutation_is_refused(statement: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse_mutation(statement, DEFINITION)


@pytest.mark.parametrize(
    "where",
    [
        "k = 1",
        "not (k = 1 or k is null) and d between date'2018-01-01' and '2018-02-01'",
        "v <=> double('NaN')",
        "`odd name` <> -5 and r.a >= 2 and s in ('it\\'s', '\\\\', \"x\")",
        "s ilike '%a\\_b%' and price < 1.50 and k > 10L",
        "s is not null and not s like 'a%' and k not in (1, 2)",
        "s = ' where x, set ; ' and `where` = 1",
    ],
)
def test_a_condition_means_the_same_in_a_statement_and_by_itself(where: str) -> None:
    found = parse_mutation(f"DELETE FROM orders WHERE {where}", DEFINITION)
    given, alone = (check_mutation(m, DEFINITION).predicate for m in (found, delete_where(where, DEFINITION)))
    assert given.node == alone.node


def test_a_doubled_quote_is_refused_and_keeps_its_meaning_in_the_log() -> None:
    refused = r"write \\' for a quote in a text"
    with pytest.raises(BadInput, match=refused):
        delete_where("s = 'it''s'", DEFINITION)
    with pytest.raises(BadInput, match=refused):
        update_where({"s": "'it''s'"}, "k = 1", DEFINITION)
    with pytest.raises(BadInput, match=refused):
        parse_mutation("DELETE FROM orders WHERE s = 'it''s'", DEFINITION)
    recorded = delete_where("s = 'its'", DEFINITION)
    older = msgspec.structs.replace(recorded, where="s = 'it''s'")
    assert check_mutation(older, DEFINITION).predicate.node == check_mutation(recorded, DEFINITION).predicate.node
    escaped = delete_where(r"s = 'it\'s'", DEFINITION)
    assert (
        check_mutation(escaped, DEFINITION).predicate.node
        == check_mutation(delete_where('s = "it\'s"', DEFINITION), DEFINITION).predicate.node
    )


# --- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("k", "k + 1", "order key.*insert them again"),
        ("D", "date'2018-01-01'", "partition key"),
        ("vv", "1", "did you mean 'v'"),
        ("nothing_like_it", "1", "its columns are d, k"),
        ("s", "null", "may not be null"),
        ("s", "cast(null as string)", "may not be null"),
        ("v", "now()", "not the same on every replica"),
        ("v", "v + rand()", "not the same on every replica"),
        ("s", "concat(s, uuid())", "not the same on every replica"),
        ("price", "v", "double"),
        ("v", "'x'", "use cast"),
        ("v", "v + 1 -- more", "comment"),
        ("v", "nope + 1", "no column 'nope'"),
        ("v", "1, price = 2", "can't read|not understood"),
    ],
)
def test_an_assignment_that_can_not_be_is_refused(column: str, value: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        update_where({column: value}, "k = 1", DEFINITION)


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("d < current_date()", "not the same on every replica"),
        ("rand() < 0.5", "not the same on every replica"),
        ("kk = 1", "no column 'kk'"),
        ("k = 'x'", "use a number"),
        ("k = 1 /* one */", "comment"),
        ("upper(s) = 7", "use cast"),
        ("k", "column k is bigint: compare it"),
        ("k = 1; k = 2", "understood"),
        ("", "can't read"),
    ],
)
def test_a_condition_that_can_not_be_is_refused(where: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        delete_where(where, DEFINITION)
    with pytest.raises(BadInput, match=problem):
        update_where({"v": "1"}, where, DEFINITION)


def test_what_the_log_holds_is_checked_again_as_a_whole() -> None:
    good = update_where({"v": "1", "price": "2"}, "k = 1", DEFINITION)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"assignments": ()}, "sets columns"),
        ({"kind": MutationKind.DELETE}, "a delete none"),
        ({"assignments": tuple(reversed(good.assignments))}, "order"),
        ({"assignments": (*good.assignments, good.assignments[1])}, "twice"),
        ({"partition": "../x"}, "partition"),
        ({"where": "k = '" + "x" * MUTATION_BYTES_MAX + "'"}, "bytes"),
    ]
    for fields, problem in bad:
        with pytest.raises(BadInput, match=problem):
            check_mutation(msgspec.structs.replace(good, **fields), DEFINITION)


def test_decimals_with_more_digits_than_can_be_calculated_with_are_refused_before_any_row_is_seen() -> None:
    wide = define_table("t", "a decimal(38,18), b decimal(38,18)")
    with pytest.raises(BadInput, match="narrower"):
        update_where({"a": "a / b"}, "true", wide)
    with pytest.raises(BadInput, match="narrower"):
        update_where({"a": "a * b"}, "true", wide)


DEEP = ["(" * 31 + "k = 1" + ")" * 31, "not " * 40 + "k = 1", "k = " + "(" * 35 + "1" + ")" * 35]


@pytest.mark.parametrize("where", DEEP)
def test_what_a_replica_with_less_stack_could_not_read_is_refused(where: str) -> None:
    with pytest.raises(BadInput, match=r"nested too deeply|understood"):
        delete_where(where, DEFINITION)


def test_chains_may_be_long_where_they_need_no_stack() -> None:
    many = delete_where(" or ".join(f"(k = {n} and v > {n})" for n in range(1500)), DEFINITION)
    assert check_mutation(many, DEFINITION).predicate.columns == ("k", "v")
    assert update_where({"v": " + ".join(["v"] * 100)}, "true", DEFINITION).assignments
    for value in (" + ".join(["v"] * 102), " || ".join(["s"] * 102)):
        with pytest.raises(BadInput, match="nested too deeply"):
            update_where({"s" if "s" in value else "v": value}, "true", DEFINITION)


# --- format -----------------------------------------------------------------------------------------------------------------


def test_the_bytes_of_mutations_are_these() -> None:
    delete = delete_where("k > 10", DEFINITION)
    update = update_where({"price": "price * 1.1", "v": "null"}, "s = 'ä'", DEFINITION, partition="2018-01")
    assert delete.text == '{"format":1,"kind":"delete","where":"k > 10"}'
    assert update.text == (
        '{"format":1,"kind":"update","where":"s = \'ä\'","assignments":[["v","null"],["price","price * 1.1"]],'
        '"partition":"2018-01"}'
    )
    for mutation in (delete, update):
        assert decode_mutation(mutation.encode()) == decode_mutation(mutation.text) == mutation


@given(st.text(max_size=20), st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5))), st.none() | st.text())
def test_every_mutation_is_read_back(where: str, assignments: list[tuple[str, str]], partition: str | None) -> None:
    mutation = MutationCommand(
        format=1, kind=MutationKind.UPDATE, where=where, assignments=tuple(assignments), partition=partition
    )
    assert decode_mutation(mutation.encode()) == mutation


@pytest.mark.parametrize(
    "data",
    [
        b'{"format":2,"kind":"delete","where":"true"}',
        b'{"format":1,"kind":"delete","where":"true","new":1}',
        b'{"format":1,"kind":"merge","where":"true"}',
        b'{"kind":"delete"}',
        b"\xff",
        b"",
    ],
)
def test_a_mutation_that_is_not_understood_is_refused(data: bytes) -> None:
    with pytest.raises(UnsupportedFormat):
        decode_mutation(data)


# --- pruning ----------------------------------------------------------------------------------------------------------------


def test_parts_are_left_alone_that_can_have_no_such_row() -> None:
    rows = conform({"d": [None, None], "k": [5, 9], "s": ["a", "b"]}, DEFINITION)
    [part] = split_by_partition(rows, DEFINITION)
    found = manifest(partition=part.partition, rows=2, columns=table_statistics(part.rows, DEFINITION))
    for where, untouched in (("k > 9", True), ("k = 7", False), ("v > 1", False), ("k < 5 or k is null", True)):
        assert cannot_touch(found, delete_where(where, DEFINITION), DEFINITION) == untouched
        assert cannot_touch(found, update_where({"v": "1"}, where, DEFINITION), DEFINITION) == untouched
    assert cannot_touch(found, delete_where("true", DEFINITION, partition="2018-01"), DEFINITION)
    assert not cannot_touch(found, delete_where("true", DEFINITION, partition=part.partition), DEFINITION)


def test_a_part_without_rows_is_left_alone() -> None:
    assert cannot_touch(manifest(rows=0), delete_where("true", DEFINITION), DEFINITION)


def test_checking_no_rows_of_a_table_that_may_not_be_null_is_no_error() -> None:
    strict = define_table("t", "a int not null, b int not null")
    checked = check_mutation(update_where({"b": "a + coalesce(b, 1)"}, "a is not null", strict), strict)
    assert checked.assignments[0].expression.type == pa.int32()
