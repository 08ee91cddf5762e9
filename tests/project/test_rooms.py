"""Rooms have walls: a folder holds few modules, and says what lives in it, what it may import and how it may be changed."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.project.source import CHECKER, PACKAGE, ROOT, SOURCES, modules

MODULES_MAX = 20
CROWDED = {
    "replitree/tablet/members": 22,  # one file for each thing that a member does; they are read side by side
}
"""Folders with more modules, with how many they may have; the numbers only fall."""

IN_ROOMS = (
    *(PACKAGE / name for name in ("protocol", "storage", "tablet", "keeper", "replica", "client", "spark", "cli")),
    CHECKER / "replitree_verify",
)
"""Packages that consist of rooms."""

ROOMS = {package: sorted(path.parent for path in package.glob("*/__init__.py")) for package in IN_ROOMS}

EVERY_ROOM = [
    PACKAGE / "wire",
    *sorted(path.parent for package in IN_ROOMS for path in package.rglob("*/__init__.py")),
]
"""With the rooms within rooms."""


def folders() -> dict[str, int]:
    """How many modules each folder of the distributions holds."""
    paths = [module.path for module in modules(*SOURCES) if module.path.name != "__init__.py"]
    names = [
        path.parent.relative_to(each).as_posix() for path in paths for each in SOURCES if path.is_relative_to(each)
    ]
    return {name: names.count(name) for name in set(names)}


def test_a_folder_holds_few_modules() -> None:
    assert {name: count for name, count in folders().items() if count > CROWDED.get(name, MODULES_MAX)} == {}


def test_every_exception_is_needed() -> None:
    found = folders()
    assert {name: found.get(name) for name in CROWDED} == CROWDED, "lower the number, or strike the folder off"


@pytest.mark.parametrize("room", EVERY_ROOM, ids=lambda room: "/".join(room.parts[-2:]))
def test_a_room_says_what_it_is(room: Path) -> None:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    first, *_ = text.splitlines()
    assert first.endswith(".")
    assert "\n\nImports: " in text
    assert "\n\nChanges: " in text


@pytest.mark.parametrize(
    "package",
    [package for package in IN_ROOMS if package.name not in ("tablet", "keeper")],
    ids=lambda package: package.name,
)
def test_a_contract_orders_the_rooms_of_a_package(package: Path) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (source,) = (folder for folder in SOURCES if package.is_relative_to(folder))
    container = ".".join(package.relative_to(source).parts)
    (layers,) = [each["layers"] for each in contracts if each.get("containers") == [container]]
    ordered = [name for layer in layers for name in layer.split(" | ")]
    # a module beside the rooms may have a place in the order, too
    assert sorted(name for name in ordered if not (package / f"{name}.py").exists()) == [
        room.name for room in ROOMS[package]
    ]
