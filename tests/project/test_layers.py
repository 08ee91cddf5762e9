"""Imports go one way, and no package escapes the contracts.

`make layers` checks the contracts of pyproject.toml.  Here: that they mention everything there is, and, module by module, what
it imports from above, inside its functions too.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

import pytest

from tests.project.source import PACKAGE, ROOT, SOURCE, Module, modules

ENTRANCE = "replitree"
"""The package itself: what users import.  It stands above the layers and hands out their public names."""


@cache
def layers() -> tuple[tuple[str, ...], ...]:
    """The layers from the top; packages of one layer stand side by side."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    return tuple(tuple(re.findall(r"[\w.]+", layer)) for layer in contract["layers"])


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
    """Dotted name of a module below `src`."""
    return ".".join(module.path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def test_every_package_has_a_layer() -> None:
    found = {f"replitree.{path.stem}" for path in PACKAGE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    placed = {name for layer in layers() for name in layer}
    assert found - {"replitree.__init__", "replitree.__main__"} <= placed, "give it a place in pyproject.toml's layers"


@pytest.mark.parametrize("module", modules(SOURCE), ids=lambda module: module.place)
def test_module_imports_only_from_its_layer_and_below(module: Module) -> None:
    name = module_name(module)
    own = layer_of(name)
    if own is None:
        assert name in {ENTRANCE, f"{ENTRANCE}.__main__"}
        return
    above = [each for each in imported(module) if (layer := layer_of(each)) is not None and layer < own]
    assert above == []
