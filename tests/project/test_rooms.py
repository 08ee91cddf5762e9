"""Rooms have walls: a folder holds few modules, and says what lives in it, what it may import and how it may be changed."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.project.source import PACKAGE, ROOT, SOURCES, modules

MODULES_MAX = 20
CROWDED = {
    "replitree/tablet/members": 22,  # one file for each thing that a member does; they are read side by side
    "replitree_bench": 27,
    "replitree_verify": 72,
    "replitree_verify/simulation": 21,
    "replitree_verify/tablets": 33,
    "replitree_published/packed": 21,
}
"""Folders with more modules, with how many they may have; the numbers only fall."""

IN_ROOMS = ("protocol", "storage", "tablet", "replica", "client", "spark", "cli")
"""Packages that consist of rooms."""

ROOMS = [
    PACKAGE / "wire",
    *(path.parent for name in IN_ROOMS for path in sorted((PACKAGE / name).glob("*/__init__.py"))),
]


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


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(PACKAGE).as_posix())
def test_a_room_says_what_it_is(room: Path) -> None:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    first, *_ = text.splitlines()
    assert first.endswith(".")
    assert "\n\nImports: " in text
    assert "\n\nChanges: " in text


@pytest.mark.parametrize("package", [name for name in IN_ROOMS if name != "tablet"])
def test_a_contract_orders_the_rooms_of_a_package(package: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (ordered,) = [each["layers"] for each in contracts if each.get("containers") == [f"replitree.{package}"]]
    assert sorted(ordered) == sorted(room.name for room in ROOMS if room.parent.name == package)
