"""The protocol is pure; and the lint that says so sees what it claims to see."""

from __future__ import annotations

import ast

import pytest

from tests.project.purity import KEEPER, TABLET, violations
from tests.project.source import PACKAGE, Module, modules


@pytest.mark.parametrize("module", modules(PACKAGE / "protocol"), ids=lambda module: module.path.name)
def test_protocol_module_is_pure(module: Module) -> None:
    assert violations(module.tree) == []


@pytest.mark.parametrize(
    "module", modules(PACKAGE / "tablet" / "core", PACKAGE / "tablet" / "group"), ids=lambda module: module.path.name
)
def test_tablet_module_is_pure(module: Module) -> None:
    assert violations(module.tree, TABLET) == []


@pytest.mark.parametrize("module", modules(PACKAGE / "keeper" / "core"), ids=lambda module: module.path.name)
def test_keeper_module_is_pure(module: Module) -> None:
    assert violations(module.tree, KEEPER) == []


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import time", "take the time as an argument"),
        ("import os.path", "yield an effect"),
        ("from random import choice", "take the random choice as an argument"),
        ("import numpy as np", "not known to be pure"),
        ("from replitree.storage import disk", "not known to be pure"),
        ("from . import parts", "not known to be pure"),
        ("def f():\n    import logging", "the caller logs"),
        ("hash('a')", "differs from process to process"),
        ("print('a')", "the caller prints"),
        ("def f():\n    global a", "global"),
        ("async def f(): pass", "async"),
    ],
)
def test_impure_code_is_found(code: str, what: str) -> None:
    (found,) = violations(ast.parse(code))
    assert what in found


@pytest.mark.parametrize(
    "code",
    [
        "for a in {1, 2}: pass",
        "for a in set(b): pass",
        "b = frozenset(c)\nfor a in b: pass",
        "b: set[int] = c()\nlist(b)",
        "def f(b: frozenset[str]):\n    return [a for a in b]",
        "def f(*, b: set[str] | None):\n    return tuple(b)",
        "def f(b: AbstractSet[str]):\n    yield from b",
        "def f(b):\n    known = set(b)\n    return [*known]",
        "b = {1} | c\nfor a in b: pass",
        "for a in b.union(c): pass",
        "b = {1}\nfor a in b - c: pass",
        "''.join({'a'})",
        "b = {1}\nb.pop()",
        "dict.fromkeys({1})",
        "for i, a in enumerate({1}): pass",
        "b = {1}\ndef f():\n    return list(b)",
        "{a: 1 for a in {1}}",
    ],
)
def test_iteration_over_a_set_is_found(code: str) -> None:
    (found,) = violations(ast.parse(code))
    assert "sort it first" in found


@pytest.mark.parametrize(
    "code",
    [
        "from dataclasses import dataclass\nfrom replitree.protocol.core.effects import Get\nimport msgspec",
        "for a in sorted({1, 2}): pass",
        "b = {1}\nassert 1 in b and len(b) == 1 and max(b)",
        "b = {1: 2}\nfor a in b: pass",
        "for a in [1]: pass",
        "b = {1}\nall(a for a in b)",
        "b = {1}\nsorted(a + 1 for a in b)",
        "b = {1}\nc = {*b, 2}",
        "b = {1}\nc = {a + 1 for a in b}",
        "b = set(c)\nfor a in c:\n    b.add(a)",
        "for a in b - c: pass",
        "def f():\n    b = {1}\ndef g(b):\n    return list(b)",
    ],
)
def test_pure_code_is_let_through(code: str) -> None:
    assert violations(ast.parse(code)) == []
