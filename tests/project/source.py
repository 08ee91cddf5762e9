"""The checkout as the architecture tests see it: its modules and its text files.

Every worker of a test run lists all modules when it collects the tests, and parses those that it has tests of, once.

Nothing here imports what it looks at: the rules hold for code that does not even load.
"""

from __future__ import annotations

import ast
import gc
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "replitree"
"""The product."""

CHECKER, PUBLISHED, BENCH = ROOT / "verify", ROOT / "published", ROOT / "bench"
SOURCES = (SOURCE, CHECKER, PUBLISHED, BENCH)
"""Folders of the four distributions, each with a `pyproject.toml`: that of the product stands above `SOURCE`."""

PROJECTS = (ROOT, CHECKER, PUBLISHED, BENCH)
"""Where each of them has its `pyproject.toml`."""


TEXT_BYTES_MAX = 1 << 20
MADE = (
    "build",
    "dist",
    "node_modules",
    "__pycache__",
    "spark-warehouse",
    "metastore_db",
    "artifacts",
    "replitree-data",
)
"""Folders that are made, not written; so are those whose names begin with a dot."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file, parsed when it is looked at."""

    path: Path

    @property
    def text(self) -> str:
        """What is in it."""
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        """What it means."""
        return _parsed(self.path)

    @property
    def place(self) -> str:
        """Path from the root of the checkout."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def shape(self) -> Shape:
        """How long everything in it is."""
        return Shape.of(self.text, self.tree)


@dataclass(frozen=True, slots=True)
class Shape:
    """Lines without docstrings: of a file, and of each of its functions and methods, the nested ones too."""

    lines: int
    functions: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, text: str, tree: ast.Module) -> Shape:
        """Measure a file; `functions` gets names and lines, from `def` to the end."""
        documented = [node for node in ast.walk(tree) if isinstance(node, Documented)]
        before = [0] * (text.count("\n") + 2)
        for node in documented:
            for line in _docstring(node):
                before[line] = 1
        before = list(itertools.accumulate(before))
        found = []
        for node in documented:
            if isinstance(node, Function):
                end = node.end_lineno or node.lineno
                found.append((node.name, end - node.lineno + 1 - before[end] + before[node.lineno]))
        return cls(text.count("\n") - before[-1], tuple(found))


@cache
def modules(*folders: Path) -> tuple[Module, ...]:
    """Return the Python files below these folders, in order of their paths."""
    return tuple(Module(path) for folder in folders for path in sorted(folder.rglob("*.py")) if _is_written(path))


@cache
def _parsed(path: Path) -> ast.Module:
    gc.disable()  # all trees stay: looking for garbage in them takes three times as long as making them
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    finally:
        gc.freeze()
        gc.enable()


@cache
def text_files() -> tuple[Path, ...]:
    """Return all the text files of the checkout that somebody wrote, in order of their paths."""
    found: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name == ".ci" or _is_written(Path(name))]
        found += [Path(folder) / name for name in files]
    return tuple(path for path in sorted(found) if path.stat().st_size <= TEXT_BYTES_MAX and _is_text(path))


def _is_written(path: Path) -> bool:
    return not any(part in MADE for part in path.parts) and not path.name.startswith(".")


def _is_text(path: Path) -> bool:
    return b"\0" not in path.read_bytes()[:4096]


def functions(tree: ast.AST) -> Iterator[Function]:
    """Iterate over all functions and methods, the nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _docstring(node: Documented) -> range:
    """Return the lines of a docstring."""
    first = node.body[0] if node.body else None
    match first:
        case ast.Expr(value=ast.Constant(value=str())):
            return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)


def public_functions(tree: ast.Module) -> Iterator[Function]:
    """Iterate over the functions that others may call: of the module, and the methods of its public classes."""
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from (inner for inner in node.body if isinstance(inner, Function) and not inner.name.startswith("_"))
