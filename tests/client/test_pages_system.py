"""The pages start, concepts and tasks run from top to bottom on one cluster, and the notebooks after them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("pages") / "replitree-data", 3, durable=False) as cluster:
        yield cluster


@pytest.fixture
def folder(running: LocalCluster) -> Path:
    return running.folder.parent


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


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebook_runs_from_top_to_bottom(
    running: LocalCluster, notebook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cell by cell in one namespace, as a kernel does; a cell that shows a value shows it with `repr`.

    What a notebook starts as a cluster of its own is that of the pages, with no table of the names that it uses.
    """
    for name in ("events", "sales"):
        if name in running.tables():
            running.drop_table(name)
    monkeypatch.setattr(replitree, "local", lambda **_: running)
    monkeypatch.setattr(running, "close", lambda: None)
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code"), "outputs are not committed"
    names: dict[str, Any] = {}
    for number, text in enumerate(codes):
        tree = ast.parse(text, f"{notebook.name}, cell {number}")
        last = tree.body[-1]
        shown: ast.Expression | None = None
        if isinstance(last, ast.Expr):
            shown = ast.Expression(last.value)
            tree.body.pop()
        exec(compile(tree, notebook.name, "exec"), names)
        if shown is not None:
            repr(eval(compile(shown, notebook.name, "eval"), names))
