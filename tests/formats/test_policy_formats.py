"""The definition of a table with a merge policy, frozen: added to, never rewritten."""

from __future__ import annotations

import pytest

from replitree.errors import UnsupportedFormat
from replitree.storage.schema import definition
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


ORDERS = define_table(
    "orders",
    "id bigint, seen timestamp, `is deleted` boolean",
    order_by="id",
    policy="replacing(seen, `is deleted`)",
    keep="7d",
    table_id="00112233445566778899aabbccddeeff",
)


def test_a_policy_with_a_delete_marker_has_format_5(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that does not know it must not show what is deleted: it refuses the table."""
    metadata, columns = ((FROZEN / f"{name}-marker.json").read_bytes() for name in ("metadata-5", "columns-1"))
    assert decode_definition(metadata, columns) == ORDERS
    assert (ORDERS.encode_metadata(), ORDERS.encode_columns()) == (metadata, columns)
    monkeypatch.setattr(definition, "FORMATS", (1, 2, 3, 4))
    with pytest.raises(UnsupportedFormat, match="format 5"):
        decode_definition(metadata, columns)
