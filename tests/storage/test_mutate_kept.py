"""Mutations that keep the files of which no row is touched: the rows are the same as when all are written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.storage.parts.manifest import FileEntry, PartManifest, read_manifest
from replitree.storage.rewrite import mutate
from replitree.storage.rewrite.mutate import mutate_part
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.sql.evolve import AddColumn, Alter, apply_alter
from replitree.storage.sql.mutation import MutationCommand, delete_where, update_where
from tests.storage.test_mutate import DEFINITION, mutated, runs


def entries(part: Path) -> dict[str, FileEntry]:
    return {file.name: file for file in read_manifest(part).files}


def kept_and_anew(
    source: Path, mutation: MutationCommand, folder: Path, definition: TableDefinition = DEFINITION
) -> PartManifest:
    """The manifest of a result that keeps files, which has the rows of one that keeps none: their hash is the same."""
    made, _ = mutated(source, mutation, folder / "kept", definition, keep_files=True)
    anew, _ = mutated(source, mutation, folder / "anew", definition)
    assert (made.content_hash, made.columns, made.rows) == (anew.content_hash, anew.columns, anew.rows)
    return made


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("k in (0, 8)", ["data-3.parquet", "data-1.parquet", "data-2.parquet"]),
        ("k = 3", ["data-0.parquet", "data-3.parquet", "data-2.parquet"]),
        ("k in (8, 11)", ["data-3.parquet", "data-1.parquet", "data-4.parquet"]),
    ],
)
def test_files_without_a_touched_row_stay_where_they_are_in_the_order(
    tmp_path: Path, where: str, names: list[str]
) -> None:
    source = runs(tmp_path)
    before = entries(source)
    for number, mutation in enumerate(
        (delete_where(where, DEFINITION), update_where({"v": "v + 1"}, where, DEFINITION))
    ):
        made = kept_and_anew(source, mutation, _folder(tmp_path, number))
        assert [file.name for file in made.files] == names
        kept = [file for file in made.files if file.name in before]
        assert kept == [before[file.name] for file in kept]
        for file in kept:
            linked = tmp_path / str(number) / "kept" / "all" / file.name
            assert linked.stat().st_ino == (source / file.name).stat().st_ino


def _folder(tmp_path: Path, number: int) -> Path:
    folder = tmp_path / str(number)
    folder.mkdir()
    return folder


def test_a_file_that_loses_all_its_rows_is_left_out(tmp_path: Path) -> None:
    made = kept_and_anew(runs(tmp_path), delete_where("k in (1, 2, 3)", DEFINITION), tmp_path)
    assert [file.name for file in made.files] == ["data-3.parquet", "data-2.parquet"]
    made = kept_and_anew(tmp_path / "kept" / "all", delete_where("k in (0, 4, 6, 8)", DEFINITION), _folder(tmp_path, 1))
    assert [file.name for file in made.files] == ["data-2.parquet"]


def test_names_that_became_free_are_given_again(tmp_path: Path) -> None:
    made = kept_and_anew(runs(tmp_path), delete_where("k = 0", DEFINITION), tmp_path)
    assert [file.name for file in made.files] == ["data-3.parquet", "data-1.parquet", "data-2.parquet"]
    made = kept_and_anew(tmp_path / "kept" / "all", delete_where("k = 1", DEFINITION), _folder(tmp_path, 1))
    assert [file.name for file in made.files] == ["data-3.parquet", "data-0.parquet", "data-2.parquet"]


def test_nothing_is_kept_where_that_would_be_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three files are touched, and at least half of the part is to be kept."""
    monkeypatch.setattr(mutate, "KEPT_MIN", 0.5)
    source = runs(tmp_path)
    made = kept_and_anew(source, delete_where("k in (1, 11)", DEFINITION), tmp_path)
    assert not set(made.files) & set(read_manifest(source).files)


def test_nothing_is_kept_of_an_older_schema_version(tmp_path: Path) -> None:
    source = runs(tmp_path)
    newer = apply_alter(DEFINITION, Alter((AddColumn("w", "int"),)))
    made = kept_and_anew(source, delete_where("k = 0", newer), tmp_path, newer)
    assert not set(made.files) & set(read_manifest(source).files)


def test_a_mutation_that_touches_no_row_writes_nothing(tmp_path: Path) -> None:
    source = runs(tmp_path)
    for mutation in (delete_where("s = 'x'", DEFINITION), update_where({"v": "0.0"}, "v = 2.5", DEFINITION)):
        assert mutate_part(source, DEFINITION, mutation, tmp_path / "b", keep_files=True) is None


def test_what_may_be_nan_is_looked_for_in_all_files(tmp_path: Path) -> None:
    """The second file has the row that becomes NaN; the first one is touched, too."""
    mutation = update_where({"v": "case when k = 3 then double('nan') else v + 1 end"}, "k in (0, 3)", DEFINITION)
    made = kept_and_anew(runs(tmp_path), mutation, tmp_path)
    assert [file.name for file in made.files] == ["data-3.parquet", "data-4.parquet", "data-2.parquet"]
