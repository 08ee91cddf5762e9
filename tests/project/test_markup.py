"""Rich reads tags in the strings that it prints: only `replitree.cli.output` makes a console, with that switched off."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.project.source import SOURCES, modules

OUTPUT = "src/replitree/cli/output.py"
FORBIDDEN = {"from_markup", "render_str", "render_markup"}
"""Functions of Rich's that read markup."""


def _of_rich(tree: ast.Module) -> Iterator[str]:
    """Give what reads markup: a console of one's own, Rich's print, a switch that turns markup on, a column that has it on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich":
            for name in node.names:
                if name.name in {"print", "Console"} and not (
                    node.module == "rich.console" and _is_for_types(tree, node)
                ):
                    yield f"line {node.lineno}: {name.name} of rich"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = {word.arg: word.value for word in node.keywords}
            markup = given.get("markup")
            if called in FORBIDDEN or (isinstance(markup, ast.Constant) and markup.value is True):
                yield f"line {node.lineno}: {called} reads markup"
            if called == "TextColumn" and not (isinstance(markup, ast.Constant) and markup.value is False):
                yield f"line {node.lineno}: TextColumn without markup=False"


def _is_for_types(tree: ast.Module, wanted: ast.ImportFrom) -> bool:
    """Whether an import is below ``if TYPE_CHECKING``."""
    blocks = (
        node for node in tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    )
    return any(wanted is inner for block in blocks for inner in ast.walk(block))


def test_only_the_output_of_the_command_line_makes_consoles() -> None:
    found = [
        f"{module.place}: {what}"
        for module in modules(*SOURCES)
        if module.place != OUTPUT
        for what in _of_rich(module.tree)
    ]
    assert found == []


def test_the_console_of_the_command_line_reads_no_markup() -> None:
    tree = next(module.tree for module in modules(*SOURCES) if module.place == OUTPUT)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Console"
    ]
    assert len(calls) == 1
    given = {word.arg: ast.unparse(word.value) for word in calls[0].keywords}
    assert (given["markup"], given["emoji"], given["highlight"]) == ("False", "False", "False")


@pytest.mark.parametrize(
    "code",
    [
        "from rich import print",
        "from rich.console import Console",
        "from rich.text import Text\nText.from_markup('[b]')",
        "bars.TextColumn('{task.description}')",
        "screen.print('x', markup=True)",
    ],
)
def test_what_reads_markup_is_found(code: str) -> None:
    assert list(_of_rich(ast.parse(code)))
