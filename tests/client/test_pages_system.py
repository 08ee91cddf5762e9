"""The pages start, concepts and tasks run from top to bottom on one cluster, as a reader follows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from tests.pages import SHOWN, PageRunner, blocks
from tests.project.source import ROOT

pytestmark = pytest.mark.system

WITH_SPARK = frozenset({"task-stream.md"})
"""Pages that `tests/spark/test_pages_with_spark.py` runs."""

NAMES = (
    "start.md",
    *(path.name for kind in ("concept", "task") for path in sorted((ROOT / "docs").glob(f"{kind}-*.md"))),
)
SNIPPETS_MIN = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("pages")
    with LocalCluster(place / "replitree-data", 3, durable=False):
        yield place


@pytest.mark.parametrize("page", [name for name in NAMES if name not in WITH_SPARK])
def test_the_page_runs_from_top_to_bottom(folder: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("REPLITREE_URL", raising=False)
    runner = PageRunner(page)
    try:
        assert runner.run() >= 1
    finally:
        connection = runner.names.get("cluster")
        if isinstance(connection, replitree.Connection):
            connection.close()


def test_pages_have_many_snippets_and_each_runs() -> None:
    assert sum(len(blocks(name)) for name in NAMES) >= SNIPPETS_MIN
    assert {language for name in NAMES for language, _ in blocks(name)} <= {"python", "sh", "sql", "toml"} | SHOWN
