"""What alters are in logs, and altered tables in coordination, stays readable."""

from __future__ import annotations

from replitree.storage.definition import decode_definition
from replitree.storage.evolve import (
    AddColumn,
    Alter,
    DropColumn,
    DropDefault,
    DropNotNull,
    RenameColumn,
    SetDefault,
    WidenColumn,
    apply_alter,
    decode_alter,
)
from replitree.storage.read import read_parts
from tests.formats.samples import DEFINITION, FROZEN, rows

ALTERS = (
    Alter(
        (
            AddColumn("n1", "bigint", nullable=False, default=1),
            AddColumn("first", "timestamp", default=-1, first=True),
            AddColumn("later", "array<int>", after="b"),
            RenameColumn("i64", "the key"),
            DropColumn("x"),
        )
    ),
    Alter(
        (
            AddColumn("x", "decimal(6,2)", default="-1.50"),
            WidenColumn("i32", "double"),
            SetDefault("s", "größe"),
            DropDefault("x"),
            DropNotNull("b"),
        )
    ),
)


def test_alters_of_format_1() -> None:
    for number, alter in enumerate(ALTERS, start=1):
        frozen = (FROZEN / f"alter-1-{number}.json").read_bytes()
        assert decode_alter(frozen) == alter
        assert alter.encode() == frozen


def test_columns_of_an_altered_table_of_format_1() -> None:
    altered = DEFINITION
    for alter in ALTERS:
        altered = apply_alter(altered, alter)
    metadata, columns = (FROZEN / "metadata-1.json").read_bytes(), (FROZEN / "columns-1-altered.json").read_bytes()
    assert decode_definition(metadata, columns) == altered
    assert (altered.encode_metadata(), altered.encode_columns()) == (metadata, columns)
    assert altered.at(1) == DEFINITION


def test_part_of_format_1_shows_the_columns_of_an_altered_table() -> None:
    altered = decode_definition(
        (FROZEN / "metadata-1.json").read_bytes(), (FROZEN / "columns-1-altered.json").read_bytes()
    )
    found = read_parts([FROZEN / "part-1"], altered).to_pylist()
    for shown, row in zip(found, rows().to_pylist(), strict=True):
        assert shown["the key"] == row["i64"]
        assert shown["i32"] == row["i32"]
        assert (shown["n1"], shown["first"].microsecond, shown["later"], str(shown["x"])) == (1, 999_999, None, "-1.50")
        assert {name: shown[name] for name in ("b", "s", "y", "l", "p")} == {
            name: row[name] for name in ("b", "s", "y", "l", "p")
        }
