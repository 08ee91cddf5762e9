"""The names in a folder, and its own name when it is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.storage import durable
from replitree.storage.durable import make_folder, sync_made


def test_a_new_folder_is_synced_after_its_names_and_then_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    folder = tmp_path / "new"
    for _ in range(2):
        sync_made(folder, is_new=make_folder(folder))
    assert synced == [folder, tmp_path, folder]
