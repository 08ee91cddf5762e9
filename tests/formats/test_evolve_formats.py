"""What alters are in logs, and altered tables in coordination, stays readable."""

from __future__ import annotations

import pytest

from replitree.errors import UnsupportedFormat
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import decode_definition
from replitree.storage.sql.evolve import (
    AddColumn,
    Alter,
    DropColumn,
    DropDefault,
    DropNotNull,
    RenameColumn,
    SetDefault,
    WidenColumn,
    apply_alter,
)
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


INNER = Alter(
    (
        AddColumn("r", "map<string,int8>", after="a", inside=("c.d",)),
        DropColumn("r", inside=("odd name",)),
        AddColumn("r", "float", first=True, inside=("Odd Name",)),
        RenameColumn("p", "u", inside=("value", "element", "q")),
        WidenColumn("r", "decimal(20,0)", inside=("a",)),
    )
)
"""Changes inside columns."""


@pytest.mark.parametrize(("name", "alter"), [("1-1", ALTERS[0]), ("1-2", ALTERS[1]), ("2-1", INNER)])
def test_alters(name: str, alter: Alter) -> None:
    frozen = (FROZEN / f"alter-{name}.json").read_bytes()
    assert alter.encode() == frozen
    assert alter.format == int(name[0])


def test_columns_of_format_2_are_those_whose_insides_were_altered() -> None:
    altered = apply_alter(DEFINITION, INNER)
    metadata, columns = (FROZEN / "metadata-1.json").read_bytes(), (FROZEN / "columns-2-altered.json").read_bytes()
    assert decode_definition(metadata, columns) == altered
    assert (altered.encode_metadata(), altered.encode_columns()) == (metadata, columns)
    assert altered.at(1) == DEFINITION
    with pytest.raises(UnsupportedFormat, match="columns node has format 3, this replitree knows up to 2: upgrade it"):
        decode_definition(metadata, columns.replace(b'"format":2', b'"format":3'))


def test_part_of_format_1_shows_altered_insides() -> None:
    altered = apply_alter(DEFINITION, INNER)
    found = read_parts([FROZEN / "part-1"], altered).to_pylist()
    for shown, row in zip(found, rows().to_pylist(), strict=True):
        assert (shown["r"] is None) == (row["r"] is None)
        if row["r"] is not None:
            assert shown["r"] == {"Odd Name": None, "a": row["r"]["a"], "c.d": None}
        old = [(k, v and [e and {"u": e["q"], "w": e["w"]} for e in v]) for k, v in row["p"] or []]
        assert (shown["p"] or []) == old


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
