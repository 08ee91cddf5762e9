"""Whoever calls a function of ours finds out from its docstring what it takes and gives, in NumPy style.

Ruff checks the form (rules D, convention numpy).  Here: that nothing public is without, that no other style crept in, and that
what a docstring documents is really there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.project.source import SOURCES, Function, Module, modules, public_functions

OTHER_STYLES = re.compile(
    r"^\s*(:param |:return|:raises |@param |(Args|Arguments|Kwargs|Raises|Returns|Yields):\s*$)", re.MULTILINE
)
INHERITED = ("override", "overload")
"""Decorators of functions that are documented elsewhere."""


def test_every_module_says_what_it_guarantees() -> None:
    assert [module.place for module in modules(*SOURCES) if not ast.get_docstring(module.tree)] == []


def test_everything_public_is_documented() -> None:
    everything = ((module, node) for module in modules(*SOURCES) for node in public_functions(module.tree))
    assert [f"{module.place}:{node.lineno} {what}" for module, node in everything for what in _faults(node)] == []


def test_documented_parameters_exist() -> None:
    assert [wrong for module in modules(*SOURCES) for wrong in _documented_and_unknown(module)] == []


def _documented_and_unknown(module: Module) -> Iterator[str]:
    for node in public_functions(module.tree):
        yield from (f"{module.place}:{node.lineno} {name}" for name in _unknown(node, ()))
    for each in (node for node in module.tree.body if isinstance(node, ast.ClassDef)):
        initialisers = [inner for inner in each.body if isinstance(inner, Function) and inner.name == "__init__"]
        names = [name for initialiser in initialisers for name in _parameters(initialiser)] + _fields(each)
        yield from (f"{module.place}:{each.lineno} {name}" for name in _unknown(each, names))


def _faults(node: Function) -> list[str]:
    docstring = ast.get_docstring(node)
    if docstring is None:
        return [] if _is_inherited(node) else ["no docstring"]
    return [f"not NumPy style: {found[0].strip()}" for found in OTHER_STYLES.finditer(docstring)]


def _is_inherited(node: Function) -> bool:
    """Tell whether it is documented where it is first declared."""
    names = [ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    return any(name in INHERITED or name == "setter" for name in names)


def _unknown(node: Function | ast.ClassDef, fields: list[str] | tuple[str, ...]) -> list[str]:
    """Return the documented parameters that the function, or the class with these fields, does not have."""
    known = [*fields, *(_parameters(node) if isinstance(node, Function) else ())]
    return [name for name in _documented(ast.get_docstring(node) or "") if name.lstrip("*") not in known]


def _documented(docstring: str) -> list[str]:
    """Return the names in the section `Parameters` of a docstring.

    A line at the margin names one parameter or several, with or without a type.
    """
    text = ""
    for section in re.split(r"\n(?=[A-Z][A-Za-z ]+\n-{3,}\n)", docstring):
        title, _, rest = section.partition("\n")
        text += rest.partition("\n")[2] if title == "Parameters" else ""
    lines = [line.partition(" : ")[0] for line in text.splitlines() if re.match(r"[*A-Za-z_]", line)]
    return [name.strip() for line in lines for name in line.split(",")]


def _parameters(node: Function) -> list[str]:
    arguments = node.args
    starred = [each for each in (arguments.vararg, arguments.kwarg) if each]
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *starred)]


def _fields(node: ast.ClassDef) -> list[str]:
    return [
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
