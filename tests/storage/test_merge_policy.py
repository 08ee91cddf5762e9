from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput, UnsupportedFormat
from replitree.storage.rewrite.merge_reduce import summed_columns
from replitree.storage.schema.definition import TableDefinition, decode_definition, define_table
from replitree.storage.schema.merge_policy import PLAIN, MergePolicy, PolicyKind, parse_policy

SCHEMA = "k bigint, d date, v bigint, t timestamp, x double, m decimal(10,2), s string, `odd, name` int"

names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=5)


def _table(policy: str, order_by: str | tuple[str, ...] = "k", partition_by: tuple[str, ...] = ()) -> TableDefinition:
    return define_table("t", SCHEMA, order_by=order_by, partition_by=partition_by, policy=policy)


@given(st.sampled_from(PolicyKind), st.lists(names, max_size=3))
def test_a_policy_is_read_as_it_was_written(kind: PolicyKind, columns: list[str]) -> None:
    policy = MergePolicy(kind, tuple(columns))
    assert parse_policy(policy.text) == policy


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("plain", "plain"),
        (" Replacing ", "replacing"),
        ("REPLACING( v )", "replacing(v)"),
        ("replacing(v,`odd, name`)", "replacing(v, `odd, name`)"),
        ("summing()", "summing"),
        ("summing(v,`odd, name`)", "summing(v, `odd, name`)"),
    ],
)
def test_a_policy_has_one_text(text: str, canonical: str) -> None:
    definition = _table(text)
    assert definition.policy.text == canonical
    assert decode_definition(definition.encode_metadata(), definition.encode_columns()) == definition


def test_a_plain_table_has_the_bytes_that_it_always_had() -> None:
    plain = define_table("t", SCHEMA, order_by="k", policy="plain")
    assert b"policy" not in plain.encode_metadata()
    assert plain.policy == PLAIN
    assert b'"policy":"replacing(v)"' in _table("replacing(v)").encode_metadata()


def test_a_policy_of_a_newer_version_is_refused() -> None:
    definition = _table("replacing(v)")
    newer = definition.encode_metadata().replace(b"replacing", b"collapsing")
    with pytest.raises(UnsupportedFormat, match="not a merge policy"):
        decode_definition(newer, definition.encode_columns())


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("collapsing", "not a merge policy"),
        ("replacing(v", "not a merge policy"),
        ("", "not a merge policy"),
        ("replacing(v x)", "expected a comma"),
        ("replacing(,)", "expected a column's name"),
        ("summing(v,)", "expected a column's name"),
        ("plain(v)", "takes no columns"),
        ("replacing(nope)", "no column 'nope'"),
        ("replacing(v, t)", "a delete marker is a boolean or a whole number, 't' is not"),
        ("replacing(s)", "a version is a whole number"),
        ("replacing(x)", "a version is a whole number"),
        ("replacing(k)", "is in a key"),
        ("summing(s)", "no numbers to add"),
        ("summing(t)", "no numbers to add"),
        ("summing(v, v)", "twice"),
        ("summing(k)", "must not change"),
    ],
)
def test_a_policy_that_does_not_fit_the_table_is_refused(policy: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        _table(policy)


@pytest.mark.parametrize("policy", ["replacing", "summing"])
def test_a_policy_needs_an_order_key(policy: str) -> None:
    with pytest.raises(BadInput, match="order_by"):
        _table(policy, order_by=())


def test_a_column_of_the_partition_key_is_never_added() -> None:
    definition = _table("summing", partition_by=("bucket(4, v)",))
    assert summed_columns(definition) == ("x", "m", "odd, name")
    with pytest.raises(BadInput, match="must not change"):
        _table("summing(v)", partition_by=("bucket(4, v)",))
    with pytest.raises(BadInput, match="no column outside the keys"):
        define_table("t", "k int, s string", order_by="k", policy="summing")


def test_summed_columns_are_those_that_were_named() -> None:
    assert summed_columns(_table("summing(m, v)")) == ("v", "m")
    assert summed_columns(_table("plain")) == ()
    marked = _table("replacing(v, `odd, name`)").policy
    assert (marked.version, marked.deleted) == ("v", "odd, name")
    assert marked.renamed("odd, name", "gone").deleted == "gone"
    assert (_table("replacing(v)").policy.deleted, _table("summing(v, m)").policy.deleted) == (None, None)
    assert _table("replacing(v)").policy.renamed("v", "w").version == "w"
    assert pa.types.is_decimal(_table("summing").arrow_schema.field("m").type)
