"""The program that ships is the program that was explored: the replica's driver and the checker run the same stages."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from replitree.protocol.program import executor, life, puller
from replitree.replica.table import activation, workers
from replitree_verify.process import seat_threads
from replitree_verify.simulation import process
from replitree_verify.traces import conversation
from tests.project.source import PACKAGE

RUN_BESIDE = {
    "perform/driver.py": 1,
    "rescue/restore.py": 1,
}
"""Modules of the replica that run procedures which no stage strings together, and in how many places; the numbers only fall."""


def begun_in(module: object) -> set[object]:
    """The stages that a module begins: what it names by their rooms, as in ``life.become_active``."""
    source = inspect.getsource(module)  # type: ignore[arg-type]
    rooms = (life, puller, executor)
    names = {room.__name__.rpartition(".")[2]: room for room in rooms}
    found = re.findall(rf"\b({'|'.join(names)})\.([a-z_]+)\b", source)
    return {getattr(names[room], name) for room, name in found if hasattr(names[room], name)}


def test_the_replica_begins_with_the_stages_that_the_checker_begins_with() -> None:
    threads = {life.become_active, puller.pull_next, executor.execute_next, executor.make_next}
    shipped = begun_in(activation) | begun_in(workers)
    for checker in (seat_threads, process, conversation):
        assert threads <= begun_in(checker), checker
    assert threads <= shipped


def functions() -> dict[str, ast.FunctionDef]:
    """Return the functions of the program by name."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8")) for path in sorted((PACKAGE / "protocol/program").rglob("*.py"))
    ]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


def names_in(tree: ast.AST) -> set[str]:
    """Return every name and attribute that a piece of source uses."""
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def stages_named_in(*modules: str) -> set[str]:
    """Return the stages that packages or modules begin, with those that these go on with."""
    known, found = functions(), set[str]()
    for module in map(importlib.import_module, modules):
        folders = getattr(module, "__path__", None)
        for path in Path(*folders).rglob("*.py") if folders else (Path(inspect.getfile(module)),):
            source = path.read_text(encoding="utf-8")
            if "replitree.protocol.program" in source:
                found |= names_in(ast.parse(source)) & known.keys()
    while more := {name for each in found for name in names_in(known[each]) & known.keys()} - found:
        found |= more
    return found & stages()


def stages() -> set[str]:
    """Return the stages of the program."""
    return {
        name for name, node in functions().items() if node.returns is not None and ast.unparse(node.returns) == "Stage"
    }


@pytest.mark.parametrize("package", ["replitree.replica", "replitree_verify"])
def test_each_stage_of_the_program_is_run(package: str) -> None:
    assert stages() <= stages_named_in(package)


def test_the_simulator_runs_the_stages_that_the_replica_runs() -> None:
    duties = (
        f"replitree_verify.process.{name}"
        for name in ("longlife", "quorums", "upkeep", "shares", "tags", "consumers", "uploads")
    )
    # A simulated cluster has one table: the stages of materialised views and of shards run in checkers of their own.
    others = (
        "replitree_verify.outcomes.closed_stages",
        "replitree_verify.views.space",
        "replitree_verify.commands.space",
        "replitree_verify.joint.stages",
    )
    simulated = stages_named_in("replitree_verify.simulation", *others, *duties)
    assert stages_named_in("replitree.replica") == simulated


def test_a_stage_goes_on_with_stages_of_the_program_only() -> None:
    rooms = {"life", "puller", "executor", "quorum_waiter"}
    for path in sorted((PACKAGE / "protocol/program").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Then":
                stage = call.args[0]
                is_own = isinstance(stage, ast.Name) and stage.id in own
                is_of_room = isinstance(stage, ast.Attribute) and ast.unparse(stage.value) in rooms
                assert is_own or is_of_room, f"{path.name}: {ast.unparse(call)}"


def test_few_places_of_the_replica_run_procedures_beside_the_driver() -> None:
    room = PACKAGE / "replica"
    found = {path.relative_to(room).as_posix(): calls(path) for path in sorted(room.glob("*/*.py"))}
    assert {name: count for name, count in found.items() if count} == RUN_BESIDE, "lower the number, or strike it off"


def calls(path: Path) -> int:
    """How often a module runs a procedure."""
    return len(re.findall(r"performer\.run(?:_plain)?\(", path.read_text(encoding="utf-8")))
