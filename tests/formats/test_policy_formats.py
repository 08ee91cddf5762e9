"""The definition of a table with a merge policy, frozen: added to, never rewritten."""

from __future__ import annotations

from replitree.storage.schema.definition import decode_definition, define_table
from tests.formats.samples import FROZEN

CLICKS = define_table(
    "clicks",
    "user bigint, day date, clicks bigint, `cost, net` decimal(12,2), page string",
    order_by=["user", "day"],
    policy="summing(clicks, `cost, net`)",
    table_id="00112233445566778899aabbccddeeff",
)


def test_a_definition_with_a_policy_is_read_and_written_as_it_was() -> None:
    metadata, columns = ((FROZEN / f"{name}-1-policy.json").read_bytes() for name in ("metadata", "columns"))
    assert decode_definition(metadata, columns) == CLICKS
    assert (CLICKS.encode_metadata(), CLICKS.encode_columns()) == (metadata, columns)
