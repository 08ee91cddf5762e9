"""Empty parts are whole parts, equal wherever they are made, and merge with others."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import manifest_problem
from replitree.storage.parts.part_folder import verify_files, whole_manifest
from replitree.storage.rewrite.empty import empty_content, empty_part
from replitree.storage.rewrite.merge import merge_parts
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import define_table

DEFINITION = define_table("t", "k bigint, d date", order_by=["k"], partition_by=["month(d)"], table_id="0" * 32)


def test_an_empty_part_is_whole_and_the_same_everywhere(tmp_path: Path) -> None:
    one = empty_part(DEFINITION, "2018-01", tmp_path / "one")
    other = empty_part(DEFINITION, "2018-01", tmp_path / "other", prefix="x@")
    part = tmp_path / "one" / "2018-01"
    assert manifest_problem(one) is None
    assert whole_manifest(part) == one
    verify_files(part, one)
    assert (one.rows, one.content_hash) == (0, other.content_hash) == (0, empty_content(DEFINITION))
    assert read_parts([part], DEFINITION).num_rows == 0
    assert read_parts([part], DEFINITION).schema == DEFINITION.arrow_schema


def test_a_merge_with_an_empty_part_has_the_rows_and_the_partition_of_the_other(tmp_path: Path) -> None:
    empty_part(DEFINITION, "2018-01", tmp_path / "empty")
    rows = conform({"k": [2, 1], "d": [date(2018, 1, 5), date(2018, 1, 6)]}, DEFINITION)
    [staged] = stage_table(rows, DEFINITION, tmp_path / "full", sync=False)
    sources = [tmp_path / "empty" / "2018-01", tmp_path / "full" / staged.partition]
    merged = merge_parts(sources, DEFINITION, tmp_path / "merged")
    assert merged.rows == 2
    assert merged.partition_values == staged.partition_values != ()
    assert merged.content_hash == staged.content_hash
