"""The program that ships is the program that was explored: the replica's driver and the checker run the same stages."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from replitree.protocol.program import executor, life, mender, puller, quorum_waiter
from replitree.replica.insert import quorums as shipped_quorums
from replitree.replica.table import activation, lost_parts, workers
from replitree_verify.process import losing, threads, working
from replitree_verify.process import quorums as explored_quorums
from replitree_verify.simulation import process
from replitree_verify.traces import conversation
from tests.project.source import PACKAGE

RUN_BESIDE = {
    "insert/inserts.py": 1,
    "parts/sharing.py": 7,
    "table/cleaner.py": 2,
    "perform/driver.py": 1,
    "table/mover.py": 1,
    "table/restore.py": 1,
    "table/table_replica.py": 1,
    "uploads/stored_uploads.py": 3,
}
"""Modules of the replica that run procedures which no stage strings together, and in how many places; the numbers only fall."""


def begun_in(module: object) -> set[object]:
    """The stages that a module begins: what it names by their rooms, as in ``life.become_active``."""
    source = inspect.getsource(module)  # type: ignore[arg-type]
    rooms = (life, puller, executor, quorum_waiter, mender)
    names = {room.__name__.rpartition(".")[2]: room for room in rooms}
    found = re.findall(rf"\b({'|'.join(names)})\.([a-z_]+)\b", source)
    return {getattr(names[room], name) for room, name in found if hasattr(names[room], name)}


def test_the_replica_begins_with_the_stages_that_the_checker_begins_with() -> None:
    threads = {life.become_active, puller.pull_next, executor.execute_next, executor.make_next}
    shipped = begun_in(activation) | begun_in(workers)
    for checker in (working, process, conversation):
        assert threads <= begun_in(checker), checker
    assert threads <= shipped


def test_the_replica_waits_for_quorums_as_the_checker_does() -> None:
    stages = {quorum_waiter.await_quorum, quorum_waiter.give_up_abandoned}
    assert begun_in(shipped_quorums) == stages
    assert begun_in(threads) | begun_in(explored_quorums) >= stages


def test_the_replica_declares_parts_lost_as_the_checker_does() -> None:
    assert begun_in(lost_parts) == begun_in(losing) == {mender.declare}


def test_a_stage_goes_on_with_stages_of_the_program_only() -> None:
    rooms = {"life", "puller", "executor"}
    for path in sorted((PACKAGE / "protocol/program").glob("*.py")):
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
