"""The definition that a table's folder keeps, frozen: added to, never rewritten; `restore` reads it years later."""

from __future__ import annotations

import shutil
from pathlib import Path

from replitree.storage.disk.kept_definition import FILE, keep_definition, read_definition
from tests.formats.samples import FROZEN
from tests.formats.test_policy_formats import CLICKS


def test_a_kept_definition_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    frozen = FROZEN / "definition-2.json"
    shutil.copy(frozen, tmp_path / FILE)
    assert read_definition(tmp_path) == CLICKS
    (tmp_path / FILE).unlink()
    keep_definition(tmp_path, CLICKS)
    assert (tmp_path / FILE).read_bytes() == frozen.read_bytes()


def test_a_kept_definition_without_a_checksum_is_read_and_replaced(tmp_path: Path) -> None:
    shutil.copy(FROZEN / "definition-1.json", tmp_path / FILE)
    assert read_definition(tmp_path) == CLICKS
    keep_definition(tmp_path, CLICKS)
    assert (tmp_path / FILE).read_bytes() == (FROZEN / "definition-2.json").read_bytes()
