"""What an alter makes of a definition, and what it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replitree.errors import BadInput, InvalidName, UnsupportedFormat
from replitree.storage.schema.columns import Column, ColumnStep
from replitree.storage.schema.definition import TableDefinition, decode_definition, define_table
from replitree.storage.sql.evolve import (
    COLUMNS_BYTES_MAX,
    AddColumn,
    Alter,
    Change,
    DropColumn,
    DropDefault,
    DropNotNull,
    RenameColumn,
    SetDefault,
    WidenColumn,
    apply_alter,
    find_column,
)
from tests.storage.evolving import EXAMPLES, changes, table


def _altered(definition: TableDefinition, *some: Change) -> TableDefinition:
    return apply_alter(definition, Alter(some))


def _names(definition: TableDefinition) -> list[str]:
    return [column.name for column in definition.columns]


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_history_leads_back_to_every_version(data: st.DataObject) -> None:
    definition = table()
    versions = [definition]
    for _ in range(data.draw(st.integers(1, 10))):
        some = []
        after = definition
        for _ in range(data.draw(st.integers(1, 2))):
            if (change := data.draw(changes(after))) is not None:
                after = _altered(after, change)
                some.append(change)
        if some:
            alter = Alter(tuple(some))
            definition = apply_alter(definition, alter)
            assert [c.name for c in definition.columns] == [c.name for c in after.columns]
            versions.append(definition)
    for number, known in enumerate(versions, start=1):
        assert known.schema_version == number
        assert definition.at(number) == known
        assert decode_definition(known.encode_metadata(), known.encode_columns()) == known
        assert known.encode_metadata() == versions[0].encode_metadata()
        assert known.stored.order_by == versions[0].order_by
        assert known.stored.partition_by == versions[0].partition_by


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_stored_names_and_ids_are_never_used_twice(data: st.DataObject) -> None:
    definition = table()
    ids: dict[int, str] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        for column in definition.columns:
            assert ids.setdefault(column.id, column.stored_name) == column.stored_name
        if (change := data.draw(changes(definition))) is not None:
            definition = _altered(definition, change)
    assert len({name.lower() for name in ids.values()}) == len(ids)


def test_table_that_was_never_altered_is_written_as_it_always_was() -> None:
    definition = table()
    assert definition.stored is definition
    assert definition.at(1) is definition
    assert b"stored" not in definition.encode_columns()
    assert b"history" not in definition.encode_columns()


def test_columns_are_added_where_they_are_wanted() -> None:
    definition = _altered(
        table(),
        AddColumn("last", "bigint"),
        AddColumn("one", "double", first=True),
        AddColumn("two", "array<int>", after="ONE"),
    )
    assert _names(definition) == ["one", "two", "k", "b", "v", "s", "last"]
    assert definition.schema_version == 2
    assert find_column(definition, "TWO").type == "list<int32>"


def test_added_column_that_may_not_be_null_has_a_default() -> None:
    with pytest.raises(BadInput, match="needs a default"):
        _altered(table(), AddColumn("n", "int", nullable=False))
    column = _altered(table(), AddColumn("n", "int", nullable=False, default=3)).column("n")
    assert (column.initial, column.default, column.nullable) == (3, 3, False)
    assert column.default_scalar.as_py() == 3


def test_rename_changes_what_people_see_and_nothing_in_files() -> None:
    definition = _altered(
        table(policy="summing(v)"), RenameColumn("k", "id"), RenameColumn("b", "c"), RenameColumn("v", "w")
    )
    assert definition.order_by == ("id",)
    assert [transform.text for transform in definition.partition_by] == ["bucket(2,c)"]
    assert definition.policy.text == "summing(w)"
    assert definition.stored.arrow_schema.names == ["k", "b", "v", "s"]
    assert definition.stored.policy.text == "summing(v)"
    back = _altered(definition, RenameColumn("id", "k"), RenameColumn("c", "b"), RenameColumn("w", "v"))
    assert back.columns == table().columns
    assert _altered(table(), RenameColumn("k", "K")).order_by == ("K",)


def test_stored_name_stays_short_enough() -> None:
    name = "x" * 100
    one = define_table("t", f"k int, {name} int")
    two = _altered(one, DropColumn(name), AddColumn(name, "int"), DropColumn(name), AddColumn(name, "int"))
    assert [len(column.stored_name) for column in two.columns] == [1, 100]
    assert decode_definition(two.encode_metadata(), two.encode_columns()) == two


def test_widened_column_keeps_its_defaults() -> None:
    one = _altered(table(), AddColumn("n", "int", default=5), AddColumn("m", "decimal(4,1)", default="1.5"))
    two = _altered(one, SetDefault("n", 6), WidenColumn("n", "decimal(12,2)"), WidenColumn("m", "decimal(8,3)"))
    assert (two.column("n").initial, two.column("n").default) == ("5.00", "6.00")
    assert two.column("m").default == "1.500"
    assert _altered(one, WidenColumn("n", "double")).column("n").initial == 5.0


REFUSED: list[tuple[Change, str]] = [
    (AddColumn("K", "int"), "has a column 'K' already"),
    (AddColumn("n", "int", default="a"), "can't be the default"),
    (AddColumn("n", "int", default=1.5), "can't be the default"),
    (AddColumn("n", "tinyint", default=200), "can't be the default"),
    (AddColumn("n", "array<int>", default=1), "can't be the default"),
    (AddColumn("n", "int", after="k", first=True), "can't be first and after"),
    (AddColumn("n", "int", after="z"), "no column 'z'; it has k, b, v, s"),
    (AddColumn("n", "uint64"), "no unsigned 64-bit"),
    (AddColumn(" n", "int"), "can't be a column's name"),
    (DropColumn("k"), "the order key needs it"),
    (DropColumn("B"), "partition_by needs it"),
    (DropColumn("v"), r"the policy summing\(v\) needs it"),
    (DropColumn("z"), "no column 'z'"),
    (RenameColumn("k", "k"), "has this name already"),
    (RenameColumn("k", "S"), "has a column 'S' already"),
    (WidenColumn("k", "int"), "is int32 already"),
    (WidenColumn("k", "smallint"), "not every int32 is one"),
    (WidenColumn("s", "binary"), "not every string is one"),
    (WidenColumn("b", "double"), "other partitions"),
    (WidenColumn("b", "decimal(10,0)"), "other partitions"),
    (SetDefault("s", 1), "can't be the default"),
    (DropDefault("s"), "has no default"),
    (DropNotNull("s"), "may be null already"),
]


@pytest.mark.parametrize(
    ("change", "problem"), REFUSED, ids=lambda value: None if isinstance(value, str) else repr(value)
)
def test_change_that_is_not_possible_is_refused(change: Change, problem: str) -> None:
    definition = table(policy="summing(v)")
    with pytest.raises(BadInput, match=problem):
        apply_alter(definition, Alter((AddColumn("fine", "int"), change)))


def test_last_column_and_the_first_of_too_many_are_refused() -> None:
    with pytest.raises(BadInput, match="1 to 2000 columns"):
        _altered(define_table("t", "a int"), DropColumn("a"))
    with pytest.raises(BadInput, match="1 to 2000 columns"):
        _altered(define_table("t", ", ".join(f"c{n} int" for n in range(2000))), AddColumn("a", "int"))
    with pytest.raises(BadInput, match="at least one change"):
        _altered(table())
    with pytest.raises(InvalidName):
        _altered(table(), RenameColumn("k", ""))


def test_history_does_not_grow_without_limit() -> None:
    wide = define_table("t", ", ".join(f"{'c' * 90}{n} struct<{'x' * 150}: int>" for n in range(1990)))
    with pytest.raises(BadInput, match=f"at most {COLUMNS_BYTES_MAX:,}"):
        _altered(wide, DropColumn(wide.columns[0].name))


def test_hundreds_of_alters_stay_small_and_quick_to_undo() -> None:
    definition = table()
    for number in range(300):
        definition = _altered(definition, RenameColumn(definition.columns[2].name, f"v{number}"))
    assert len(definition.encode_columns()) < 300 * 150
    assert definition.at(1) == table()


# --- formats --------------------------------------------------------------------------------------------------------------


def test_version_that_there_was_not_is_refused() -> None:
    for version in (0, 2):
        with pytest.raises(BadInput, match="schema versions 1 to 1"):
            table().at(version)


DAMAGED: list[dict[str, Any]] = [
    {"history": [{"version": 1, "position": 9, "before": None}]},
    {"history": [{"version": 5, "position": 4, "before": None}]},
    {"history": [{"version": 1, "position": 0, "before": {"id": 2, "name": "b", "type": "int8"}}]},
    {"schema_version": 3, "history": [{"version": v, "position": 4, "before": None} for v in (2, 1)]},
    {"history": [{"version": 1, "position": 0, "before": {"id": 9, "name": "V", "type": "int8"}}]},
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_history_that_contradicts_itself_is_refused(damage: dict[str, Any]) -> None:
    definition = _altered(table(), AddColumn("n", "int"))
    raw = msgspec.json.decode(definition.encode_columns()) | damage
    with pytest.raises(UnsupportedFormat):
        decode_definition(definition.encode_metadata(), msgspec.json.encode(raw))


def test_default_that_is_not_of_the_columns_type_is_refused() -> None:
    definition = _altered(table(), AddColumn("n", "int", default=1))
    raw = definition.encode_columns().replace(b'"default":1', b'"default":"x"')
    with pytest.raises(UnsupportedFormat, match="not a int32"):
        decode_definition(definition.encode_metadata(), raw)


def test_column_finds_its_stored_name_again() -> None:
    column = Column(1, "a", "int32")
    assert column.named("b").named("a") == column
    assert column.named("b").stored_name == "a"
    assert ColumnStep(1, 0, column).before == column
