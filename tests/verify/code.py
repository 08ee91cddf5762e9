"""Which code an exploration runs, as a digest: what a module imports, directly or not, without comments and docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256

from tests.project.source import CHECKER, PUBLISHED, SOURCE, modules


@cache
def _files() -> dict[str, ast.Module]:
    """Return every module of product, checker and published models, by its name."""
    found = {}
    for folder in (SOURCE, CHECKER, PUBLISHED):
        for module in modules(folder):
            parts = module.path.relative_to(folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = module
    return {name: module.tree for name, module in found.items()}


@cache
def _imported(name: str) -> frozenset[str]:
    """Return the modules of this project that a module imports, with the packages that they are in."""
    found, waiting = set[str](), list[ast.AST](_files()[name].body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                continue  # not imported when it runs
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(place), names=names):
                found.update((place, *(f"{place}.{alias.name}" for alias in names)))
        waiting += ast.iter_child_nodes(node)
    return frozenset(part for each in found for part in _with_packages(each) if part in _files())


def _with_packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


def reached(roots: Iterable[str]) -> frozenset[str]:
    """Return the modules that some modules import, directly or not, and these themselves."""
    found, waiting = set[str](), [part for root in roots for part in _with_packages(root)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imported(name)
    return frozenset(found)


def within(package: str) -> tuple[str, ...]:
    """Return the modules of a package."""
    return tuple(name for name in _files() if name == package or name.startswith(f"{package}."))


@cache
def digest_of(*roots: str) -> str:
    """Return the digest of the code of modules and of whatever they import."""
    code = sha256()
    for name in sorted(reached(roots)):
        code.update(f"{name}\n{_meaning(name)}\n".encode())
    return code.hexdigest()[:16]


@cache
def _meaning(name: str) -> str:
    """Return what a module does, without its texts for people: strings that are statements of their own."""
    tree = ast.parse(ast.unparse(_files()[name]))  # a tree of its own: others look at that of the file
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
