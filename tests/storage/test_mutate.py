from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replitree.errors import BadInput, CorruptPart, StoreError
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.conform import conform
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest, manifest_problem, read_manifest
from replitree.storage.parts.part_folder import verify_files, whole_manifest
from replitree.storage.parts.statistics import table_statistics
from replitree.storage.rewrite.mutate import MutationCancelled, MutationFailed, mutate_part
from replitree.storage.rewrite.read import read_batches, read_parts
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table
from replitree.storage.sql.evolve import Alter, RenameColumn, WidenColumn, apply_alter
from replitree.storage.sql.mutation import MutationCommand, delete_where, update_where
from tests.examples import examples
from tests.storage.support import EVERY_TYPE, values

DEFINITION = define_table(
    "t",
    "k bigint, v double, s string, n int not null, l array<double>",
    order_by=["k"],
    settings=TableSettings(row_group_rows=4),
    table_id="0" * 32,
)


def rows_of(count: int, definition: TableDefinition = DEFINITION) -> pa.Table:
    numbers = list(range(count))
    data = {"k": numbers, "v": [n / 2 for n in numbers], "s": [f"s{n}" for n in numbers], "n": numbers}
    return conform(data, definition)


def stage(folder: Path, rows: pa.Table, definition: TableDefinition = DEFINITION) -> Path:
    [manifest] = stage_table(rows, definition, folder, sync=False)
    return folder / manifest.partition


def mutated(
    source: Path, mutation: MutationCommand, folder: Path, definition: TableDefinition = DEFINITION, **options: Any
) -> tuple[PartManifest, pa.Table]:
    """The result, checked in every way that does not need to know what it should be."""
    manifest = mutate_part(source, definition, mutation, folder, **options)
    assert manifest is not None
    part = folder / f"{options.get('prefix', '')}{manifest.partition}"
    assert whole_manifest(part) == read_manifest(part) == manifest
    assert manifest_problem(manifest) is None
    verify_files(part, manifest)
    rows = read_parts([part], definition)
    assert rows.schema == definition.arrow_schema
    assert rows.num_rows == manifest.rows
    assert content_hash(rows.rename_columns(definition.stored.arrow_schema.names), definition.stored.arrow_schema) == (
        manifest.content_hash
    )
    return manifest, rows


# --- deletes ----------------------------------------------------------------------------------------------------------------


def test_deleted_rows_are_gone_and_the_others_keep_their_order(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(10))
    mutation = delete_where("k in (1, 3, 5) or k > 7", DEFINITION)
    manifest, rows = mutated(source, mutation, tmp_path / "b", prefix="m7@")
    assert rows.column("k").to_pylist() == [0, 2, 4, 6, 7]
    assert (manifest.columns["k"].min, manifest.columns["k"].max) == (0, 7)


def test_a_row_for_which_the_condition_is_null_stays(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", conform({"k": [1, None, 2], "n": [0, 0, 0], "v": [None, 1.0, 2.0]}, DEFINITION))
    _, rows = mutated(source, delete_where("v > 1 or k = 1", DEFINITION), tmp_path / "b")
    assert rows.column("k").to_pylist() == [None]
    assert mutate_part(source, DEFINITION, delete_where("not (v > 0) and k = 1", DEFINITION), tmp_path / "c") is None


@pytest.mark.parametrize("where", ["k > 9", "k is null", "false", "s = 'S1'", "null"])
def test_nothing_is_written_when_no_row_is_touched(tmp_path: Path, where: str) -> None:
    source = stage(tmp_path / "a", rows_of(10))
    for mutation in (delete_where(where, DEFINITION), update_where({"v": "v"}, where, DEFINITION)):
        assert mutate_part(source, DEFINITION, mutation, tmp_path / "b") is None
    other = delete_where("true", DEFINITION, partition="elsewhere")
    assert mutate_part(source, DEFINITION, other, tmp_path / "b") is None
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("where", ["true", "k >= 0", "s like 's%'"])
def test_a_part_of_which_all_rows_are_deleted_is_a_part_without_rows(tmp_path: Path, where: str) -> None:
    source = stage(tmp_path / "a", rows_of(10))
    manifest, rows = mutated(source, delete_where(where, DEFINITION), tmp_path / "b")
    empty = DEFINITION.arrow_schema.empty_table()
    assert (manifest.rows, rows) == (0, empty)
    assert [file.rows for file in manifest.files] == [0]
    assert manifest.columns == table_statistics(empty, DEFINITION)
    assert manifest.content_hash == content_hash(empty, DEFINITION.arrow_schema)
    part = tmp_path / "b" / "all"
    assert pq.read_table(part / "data-0.parquet").num_rows == 0
    assert list(read_batches([part], DEFINITION)) == []
    assert read_parts([part, source, part], DEFINITION, ["k"], where="k < 3").column("k").to_pylist() == [0, 1, 2]
    assert mutate_part(part, DEFINITION, delete_where("true", DEFINITION), tmp_path / "c") is None


# --- updates ----------------------------------------------------------------------------------------------------------------


def test_updated_rows_have_new_values_and_all_assignments_see_the_old_row(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(6))
    mutation = update_where({"v": "n", "n": "n + cast(v * 10 as int)", "s": "s || '!'"}, "k in (1, 5)", DEFINITION)
    _, rows = mutated(source, mutation, tmp_path / "b")
    assert rows.column("v").to_pylist() == [0.0, 1.0, 1.0, 1.5, 2.0, 5.0]
    assert rows.column("n").to_pylist() == [0, 6, 2, 3, 4, 30]
    assert rows.column("s").to_pylist() == ["s0", "s1!", "s2", "s3", "s4", "s5!"]


def test_only_selected_rows_are_calculated(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(6))
    _, rows = mutated(source, update_where({"n": "12 / n"}, "n != 0", DEFINITION), tmp_path / "b")
    assert rows.column("n").to_pylist() == [0, 12, 6, 4, 3, 2]


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("n", "12 / n", "division by zero"),
        ("n", "n + 2147483647", "does not fit"),
        ("n", "nullif(n, 3)", "null, and the column may not be"),
        ("n", "cast(s as int)", "'s0' is not a int32"),
        ("v", "cast(s as double)", "'s0' is not a double"),
    ],
)
def test_a_row_without_a_value_fails_the_mutation_of_its_part_and_leaves_nothing(
    tmp_path: Path, column: str, value: str, problem: str
) -> None:
    source = stage(tmp_path / "a", rows_of(10))
    with pytest.raises(MutationFailed, match=rf"{column} = .* in a row of all: .*{problem}"):
        mutate_part(source, DEFINITION, update_where({column: value}, "true", DEFINITION), tmp_path / "b")
    assert not (tmp_path / "b").exists() or list((tmp_path / "b").iterdir()) == []


def test_nan_that_an_update_makes_is_not_hidden_by_the_footers_bounds(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(6))
    mutation = update_where({"v": "v * 1e308 * 1e308 * 0"}, "k = 3", DEFINITION)
    _, rows = mutated(source, mutation, tmp_path / "b")
    assert pc.is_nan(rows.column("v")).to_pylist() == [k == 3 for k in range(6)]
    found = pq.read_metadata(tmp_path / "b" / "all" / "data-0.parquet").row_group(0)
    bounded = {found.column(i).path_in_schema: found.column(i).is_stats_set for i in range(found.num_columns)}
    assert (bounded["v"], bounded["k"]) == (False, True)
    again = mutate_part(
        tmp_path / "b" / "all", DEFINITION, update_where({"n": "1"}, "k = 0", DEFINITION), tmp_path / "c"
    )
    assert again is not None
    assert not pq.read_metadata(tmp_path / "c" / "all" / "data-0.parquet").row_group(0).column(1).is_stats_set


def test_an_update_that_makes_no_nan_keeps_the_bounds(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(6))
    mutated(source, update_where({"v": "v + 1"}, "k > 3", DEFINITION), tmp_path / "b")
    assert pq.read_metadata(tmp_path / "b" / "all" / "data-0.parquet").row_group(0).column(1).statistics.has_min_max


# --- as if the rows had been inserted so -------------------------------------------------------------------------------------


WIDE = define_table("w", EVERY_TYPE, order_by=["i64", "s"], settings=TableSettings(row_group_rows=3), table_id="1" * 32)
SCHEMA = WIDE.arrow_schema
MUTATIONS: list[tuple[str, dict[str, str]]] = [
    ("i64 > 0", {}),
    ("b or x > 0.5", {}),
    ("s is null or i8 < 0 and m is not null", {}),
    ("b", {"x": "f", "i8": "null", "y": "X'00'", "b": "not b", "p": "null"}),
    ("i64 is not null", {"t": "n", "d": "date'2020-01-01'", "l": "coalesce(l, l)", "r": "case when b then r end"}),
    ("x = x", {"x": "x * 2", "f": "x", "m": "case when m < 100 and m > -100 then m * 2.5 end"}),
]


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.fixed_dictionaries({field.name: values(field.type) for field in SCHEMA}), min_size=1, max_size=9),
    st.sampled_from(MUTATIONS),
)
def test_the_result_is_what_an_insert_of_the_resulting_rows_makes(
    tmp_path_factory: pytest.TempPathFactory,
    data: list[dict[str, Any]],
    mutation: tuple[str, dict[str, str]],
) -> None:
    where, assignments = mutation
    folder = tmp_path_factory.mktemp("mutate")
    given_rows = pa.Table.from_pylist(data, schema=SCHEMA)
    source = stage(folder / "a", given_rows, WIDE)
    made = update_where(assignments, where, WIDE) if assignments else delete_where(where, WIDE)
    expected = _by_rows(read_parts([source], WIDE), made)
    manifest = mutate_part(source, WIDE, made, folder / "b")
    if manifest is None:
        assert expected is None
        return
    assert expected is not None
    rows = read_parts([folder / "b" / "all"], WIDE)
    assert content_hash(rows, SCHEMA) == content_hash(expected, SCHEMA) == manifest.content_hash
    if not expected.num_rows:
        return
    [inserted] = stage_table(expected, WIDE, folder / "c", sync=False)
    assert (manifest.content_hash, manifest.rows) == (inserted.content_hash, inserted.rows)
    assert manifest.columns == inserted.columns
    made_file, inserted_file = (pq.read_metadata(folder / f / "all" / "data-0.parquet") for f in "bc")
    groups = [m.row_group(i).num_rows for m in (made_file, inserted_file) for i in range(m.num_row_groups)]
    assert groups[: len(groups) // 2] == groups[len(groups) // 2 :]
    assert made_file.schema.equals(inserted_file.schema)


def _by_rows(rows: pa.Table, mutation: MutationCommand) -> pa.Table | None:
    """What the mutation means, by Arrow's own filter for the condition; None when it touches nothing."""
    from replitree.storage.sql.expression import evaluate
    from replitree.storage.sql.mutation import check_mutation

    checked = check_mutation(mutation, WIDE)
    numbered = rows.append_column("#", pa.array(range(rows.num_rows)))
    chosen = set(numbered.filter(checked.predicate.to_arrow()).column("#").to_pylist())
    if not chosen:
        return None
    if not mutation.assignments:
        return rows.filter(pa.array([i not in chosen for i in range(rows.num_rows)]))
    singles = [rows.slice(i, 1).combine_chunks() for i in range(rows.num_rows)]
    for i in sorted(chosen):
        [batch] = singles[i].to_batches()
        for assignment in checked.assignments:
            place = SCHEMA.get_field_index(assignment.column.name)
            new = evaluate(assignment.expression, batch)
            singles[i] = singles[i].set_column(place, SCHEMA.field(place), new)
    return pa.concat_tables(singles)


def test_a_part_of_one_row_group_is_byte_for_byte_what_an_insert_makes(tmp_path: Path) -> None:
    definition = define_table("t", "k bigint, s string, v double", order_by="k", table_id="0" * 32)
    count = 20_000
    rows = conform({"k": list(range(count)), "s": [f"x{i % 7}" for i in range(count)], "v": [0.5] * count}, definition)
    source = stage(tmp_path / "a", rows, definition)
    manifest, left = mutated(source, delete_where("k < 5000", definition), tmp_path / "b", definition)
    [inserted] = stage_table(left, definition, tmp_path / "c")
    assert manifest == inserted


# --- runs, batches, bounds ----------------------------------------------------------------------------------------------------


def runs(tmp_path: Path) -> Path:
    """A part of three sorted runs that overlap."""
    files = []
    for number, keys in enumerate(([0, 2, 4, 6, 8], [1, 2, 3], [5, 7, 9, 11])):
        table = conform({"k": keys, "v": [float(k) for k in keys], "n": keys}, DEFINITION)
        files.append(tmp_path / f"f{number}.parquet")
        pq.write_table(table, files[-1], store_schema=False)
    return tmp_path / "src" / adopt_files(files, DEFINITION, tmp_path / "src").partition


def test_every_run_stays_a_run_and_one_without_rows_makes_no_file(tmp_path: Path) -> None:
    source = runs(tmp_path)
    manifest, rows = mutated(source, delete_where("k in (0, 1, 2, 3, 11)", DEFINITION), tmp_path / "b")
    assert rows.column("k").to_pylist() == [4, 6, 8, 5, 7, 9]
    assert [(file.name, file.rows) for file in manifest.files] == [("data-0.parquet", 3), ("data-1.parquet", 3)]
    manifest, rows = mutated(source, update_where({"v": "-v"}, "k = 2", DEFINITION), tmp_path / "c")
    assert rows.column("v").to_pylist() == [0, -2, 4, 6, 8, 1, -2, 3, 5, 7, 9, 11]
    assert [file.rows for file in manifest.files] == [5, 3, 4]


@pytest.mark.parametrize("memory_bytes", [3000, 10_000, 100_000])
def test_the_result_does_not_depend_on_how_many_rows_are_looked_at_together(tmp_path: Path, memory_bytes: int) -> None:
    source = stage(tmp_path / "a", rows_of(50))
    mutation = update_where({"s": "case when n < 30 then s || 'x' end", "v": "v + 1"}, "n > 20", DEFINITION)
    whole = mutate_part(source, DEFINITION, mutation, tmp_path / "b")
    assert mutate_part(source, DEFINITION, mutation, tmp_path / "c", memory_bytes=memory_bytes) == whole


def test_progress_counts_the_rows_of_the_source(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(10))
    seen: list[int] = []
    mutate_part(
        source, DEFINITION, delete_where("k = 5", DEFINITION), tmp_path / "b", memory_bytes=1, progress=seen.append
    )
    assert seen[-1] == 10
    assert all(before < after for before, after in itertools.pairwise(seen))


def test_a_cancelled_mutation_leaves_nothing_wherever_it_stopped(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(6))
    mutation = update_where({"v": "v + 1"}, "k = 5", DEFINITION)
    asked = itertools.count()
    stopped = 0
    for stop in range(1000):
        turn = itertools.count()

        def cancelled(turn: itertools.count[int] = turn, stop: int = stop) -> bool:
            next(asked)
            return next(turn) >= stop

        try:
            mutate_part(source, DEFINITION, mutation, tmp_path / "b", memory_bytes=1, cancelled=cancelled)
            break
        except MutationCancelled:
            stopped += 1
        assert not (tmp_path / "b").exists() or list((tmp_path / "b").iterdir()) == []
    assert stopped > 6
    assert (tmp_path / "b" / "all" / MANIFEST_FILE).exists()


# --- sources that are not as they should be ----------------------------------------------------------------------------------


def test_a_damaged_source_is_not_copied(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(2000))
    path = source / "data-0.parquet"
    whole = path.read_bytes()
    mutation = delete_where("n = 5", DEFINITION)
    chance = random.Random(7)
    for _ in range(20):
        at = chance.randrange(4, len(whole) - 8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptPart, match="all"):
            mutate_part(source, DEFINITION, mutation, tmp_path / "b")
        assert not (tmp_path / "b").exists()
    path.unlink()
    with pytest.raises(CorruptPart, match="all"):
        mutate_part(source, DEFINITION, mutation, tmp_path / "b")
    with pytest.raises(CorruptPart, match="missing"):
        mutate_part(tmp_path / "nowhere", DEFINITION, mutation, tmp_path / "b")


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replitree.storage.files.durable import HashingFile

    def full(*_: Any) -> int:
        raise OSError(28, "no space left")

    source = stage(tmp_path / "a", rows_of(10))
    with monkeypatch.context() as patch:
        patch.setattr(HashingFile, "write", full)
        with pytest.raises(StoreError, match="make room"):
            mutate_part(source, DEFINITION, delete_where("k = 5", DEFINITION), tmp_path / "b")
    assert list((tmp_path / "b").iterdir()) == []
    mutated(source, delete_where("k = 5", DEFINITION), tmp_path / "b")


def test_a_mutation_of_another_table_is_refused(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(3))
    other = define_table("o", "q int")
    with pytest.raises(BadInput, match="no column 'q'"):
        mutate_part(source, DEFINITION, delete_where("q = 1", other), tmp_path / "b")


# --- older schema versions ------------------------------------------------------------------------------------------------


def test_a_part_of_an_older_schema_version_is_written_with_the_new_one(tmp_path: Path) -> None:
    source = stage(tmp_path / "a", rows_of(6))
    altered = apply_alter(DEFINITION, Alter((RenameColumn(name="v", to="value"), WidenColumn(name="n", type="bigint"))))
    mutation = update_where({"value": "value + n", "n": "n + 3000000000"}, "value >= 1 and n < 5", altered)
    manifest, rows = mutated(source, mutation, tmp_path / "b", altered)
    assert manifest.schema_version == altered.schema_version
    assert rows.column("value").to_pylist() == [0.0, 0.5, 3.0, 4.5, 6.0, 2.5]
    assert rows.column("n").to_pylist() == [0, 1, 3000000002, 3000000003, 3000000004, 5]
    assert pq.read_schema(tmp_path / "b" / "all" / "data-0.parquet").names == ["k", "v", "s", "n", "l"]
    with pytest.raises((StoreError, BadInput)):
        mutate_part(tmp_path / "b" / "all", DEFINITION, delete_where("k = 1", DEFINITION), tmp_path / "c")
