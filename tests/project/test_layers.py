"""Imports go one way, and no package escapes the contracts.

`make layers` checks the contracts of pyproject.toml.  Here: that they mention everything there is, and, module by module, what
it imports from above, inside its functions too.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

from tests.project.source import PACKAGE, ROOT, SOURCES, Module, modules

ENTRANCE = "replitree"
"""The package itself: what users import.  It stands above the layers and hands out their public names."""
FRONT_DOORS = {f"{ENTRANCE}.tablet"}
"""A package whose rooms are in several layers, and whose own module hands out their public names."""


@cache
def layers() -> tuple[tuple[str, ...], ...]:
    """The layers from the top; packages of one layer stand side by side."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [
        each for each in settings["tool"]["importlinter"]["contracts"] if each["name"] == "imports go one way"
    ]
    return tuple(tuple(re.findall(r"[\w.]+", layer)) for layer in contract["layers"])


@cache
def layer_of(module: str) -> int | None:
    """Number of a module's layer, 0 at the top; None for what is in no layer."""
    for number, layer in enumerate(layers()):
        if any(module == name or module.startswith(f"{name}.") for name in layer):
            return number
    return None


def imported(module: Module) -> list[str]:
    """Return the modules that `module` imports, wherever in it."""
    names: list[str] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def module_name(module: Module) -> str:
    """Dotted name of a module of one of the distributions."""
    (source,) = (each for each in SOURCES if module.path.is_relative_to(each))
    return ".".join(module.path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def test_every_package_has_a_layer() -> None:
    found = {f"replitree.{path.stem}" for path in PACKAGE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    placed = {name for layer in layers() for name in layer} | FRONT_DOORS
    assert found - {"replitree.__init__", "replitree.__main__"} <= placed, "give it a place in pyproject.toml's layers"


def test_every_module_but_the_entrance_is_in_a_layer() -> None:
    names = {module_name(module) for module in modules(*SOURCES)}
    assert {name for name in names if layer_of(name) is None} <= {ENTRANCE, f"{ENTRANCE}.__main__", *FRONT_DOORS}


def test_modules_import_only_from_their_layer_and_below() -> None:
    assert {module.place: above for module in modules(*SOURCES) if (above := imported_from_above(module))} == {}


def imported_from_above(module: Module) -> list[str]:
    own = layer_of(module_name(module))
    layers = [(each, layer_of(each)) for each in imported(module)] if own is not None else []
    return [each for each, layer in layers if layer is not None and own is not None and layer < own]


def test_numpy_s_types_are_imported_by_name() -> None:
    """``import numpy.typing as`` does not end in a thread that meets the first import of it in another one."""
    wrong = [
        str(module.path)
        for module in modules(*SOURCES)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import) and any(alias.name == "numpy.typing" for alias in node.names)
    ]
    assert wrong == []
