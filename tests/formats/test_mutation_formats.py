"""What the log says of mutations, and what frozen snapshots say of themselves, stays readable and keeps its meaning.

Replicas of different versions apply the same mutation to the same rows; the hashes here are what all of them must get.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.storage.disk.frozen import FROZEN_FILE
from replitree.storage.disk.store import PartStore
from replitree.storage.rewrite.mutate import mutate_part
from replitree.storage.sql.mutation import check_mutation, decode_mutation
from tests.formats.samples import DEFINITION, FROZEN

RESULTS = {
    "mutation-1-delete.json": "41ca95125990f7e318aeb6f09fe9d532",
    "mutation-1-update.json": "18138cf0b81c078daa2f8f67cbfe1886",
}


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_mutation_of_format_1_does_what_it_did(name: str, tmp_path: Path) -> None:
    data = (FROZEN / name).read_bytes()
    mutation = decode_mutation(data)
    assert mutation.encode() == data
    assert check_mutation(mutation, DEFINITION).mutation == mutation
    manifest = mutate_part(FROZEN / "part-1", DEFINITION, mutation, tmp_path / "made")
    assert manifest is not None
    assert manifest.content_hash == RESULTS[name]


@pytest.mark.parametrize("name", ["frozen-1.json", "frozen-2.json"])
def test_frozen_snapshots_of_all_formats(name: str, tmp_path: Path) -> None:
    data = (FROZEN / name).read_bytes()
    store = PartStore(tmp_path / "table")
    folder = store.frozen_path("then")
    folder.mkdir()
    (folder / FROZEN_FILE).write_bytes(data)
    found = store.frozen_snapshot("then")
    assert found.definition == DEFINITION
    assert (found.table, found.index, found.note, [part.name for part in found.parts]) == (
        DEFINITION.name,
        8,
        "a note: größe",
        ["all_3_7_1"],
    )
