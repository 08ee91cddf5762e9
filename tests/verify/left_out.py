"""Leave out each effect and each operation of a commit, and see which model notices: ``python -m tests.verify.left_out``.

What can be left out without a model noticing is either not needed, or needed against something that no model has.  An effect is
looked at whose outcome is not used, such as ``yield fx.Sync(path)``; one whose outcome is used can't be left out.  A model that
runs the function is explored, the smallest first, until one breaks an invariant, fails, or never ends.

The result is ``docs/results/left_out.jsonl``, a line for each; a run that is cut off goes on where it stood.
"""

from __future__ import annotations

import argparse
import ast
import resource
import sys
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from replitree_verify.engine.explore import explore
from replitree_verify.models import MODELS
from replitree_verify.mutants.mutant import stages_with
from replitree_verify.patches.patch import Hunk, Patch
from replitree_verify.pins import PINS, is_nightly
from tests.project.source import ROOT
from tests.verify.lines import read_lines, write_lines

RESULTS = ROOT / "docs/results/left_out.jsonl"
SOURCES = ROOT / "src"

MODULES = (
    *(
        "insert.insert",
        "insert.quorum",
        "state.pull",
        "state.read",
        "state.counted",
        "state.registration",
        "state.start",
    ),
    *("execute.execute", "execute.execute_lost", "execute.drop", "execute.making", "execute.mutate"),
    *("upkeep.clean_log", "upkeep.lost", "rescue.recover", "membership.activate"),
)
"""Modules of `replitree.protocol`: inserts, pulls, the executor, quorums, reads, log cleaning, recovery."""

OPERATIONS = ("Check", "Create", "Set", "Delete")
STATES_MAX = 36_000
"""Larger models are not asked, unless the command says so."""

CPU_S_MAX = 120
"""An exploration that takes longer counts as one that never ends: the procedure repeats itself."""

UNNOTICED = "not noticed"


class LeftOut(msgspec.Struct, frozen=True):
    """What can be left out: where it is, its text, and the function without it."""

    module: str
    function: str
    line: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Noticed(msgspec.Struct, frozen=True):
    """What became of it.

    Attributes
    ----------
    models, states_max
        How many models run the function, of those with at most so many states.
    model, how
        The one that noticed, and the invariant that it broke, or what else happened.
    """

    module: str
    function: str
    line: int
    text: str
    models: int
    states_max: int
    model: str
    how: str

    def is_open(self, states_max: int) -> bool:
        """Whether larger models may still notice it."""
        return self.how == UNNOTICED and self.states_max < states_max


def find(module: str, source: str) -> Iterator[LeftOut]:
    """Find what can be left out of a module.

    >>> source = '''
    ... def end(path):
    ...     yield fx.Sync(path)
    ...     yield fx.Commit(fx.Check(path, 1), *others)
    ... '''
    >>> [each.text for each in find("m", source)]
    ['fx.Sync(path)', 'fx.Commit(fx.Check(path, 1), *others)', 'fx.Check(path, 1)', '*others']
    """
    lines = source.splitlines()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        assert function.end_lineno is not None
        whole = tuple(lines[function.lineno - 1 : function.end_lineno])
        for piece, instead in _pieces(function):
            without = _without(whole, piece, function.lineno, instead)
            yield LeftOut(
                module,
                function.name,
                piece.lineno,
                ast.unparse(piece.value if isinstance(piece, ast.Yield) and piece.value else piece),
                whole,
                without,
            )


def _pieces(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    """Return the effects and operations of a function, each with what stands in its place."""
    inner = {
        node
        for each in ast.walk(function)
        if isinstance(each, ast.FunctionDef) and each is not function
        for node in ast.walk(each)
    }
    for node in ast.walk(function):
        if node in inner:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield) and node.value.value is not None:
            yield node.value, "yield from ()"  # the function stays a generator
        elements: Sequence[ast.expr] = ()
        if isinstance(node, ast.Call) and _name(node) == "Commit":
            elements = node.args
        elif isinstance(node, ast.Tuple | ast.List) and any(map(_is_operation, node.elts)):
            elements = node.elts
        for element in elements:
            yield element, "*()"


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_operation(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _name(node) in OPERATIONS


def _without(whole: tuple[str, ...], piece: ast.expr, first: int, instead: str) -> tuple[str, ...]:
    """Return the lines of a function with something in the place of a piece of it."""
    assert piece.end_lineno is not None
    assert piece.end_col_offset is not None
    begin, end = piece.lineno - first, piece.end_lineno - first
    head = whole[begin].encode()[: piece.col_offset].decode()
    tail = whole[end].encode()[piece.end_col_offset :].decode()
    return (*whole[:begin], head + instead + tail, *whole[end + 1 :])


def models_that_run(modules: Collection[str], names: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """Return the models that run each function of some modules, by module and function, in the order of `names`."""
    files = {str(SOURCES / f"{module.replace('.', '/')}.py"): module for module in modules}
    found: dict[tuple[str, str], list[str]] = {}
    for name in names:
        ran = set[tuple[str, str]]()

        def note(frame: FrameType, event: str, _: Any, ran: set[tuple[str, str]] = ran) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename in files:
                ran.add((files[code.co_filename], code.co_name))

        sys.setprofile(note)
        try:
            explore(MODELS[name])
        finally:
            sys.setprofile(None)
        for place in ran:
            found.setdefault(place, []).append(name)
    return found


def look(piece: LeftOut, models: Sequence[str], states_max: int) -> Noticed:
    """Explore models without a piece of the code, in a process of its own, until one notices."""
    ours, theirs = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=_look, args=(piece, models, theirs))
    process.start()
    theirs.close()
    try:
        model, how = ours.recv()
    except EOFError:  # the process was ended when its time was over
        model, how = "", "does not end"
    process.join()
    return Noticed(piece.module, piece.function, piece.line, piece.text, len(models), states_max, model, how)


def _look(piece: LeftOut, models: Sequence[str], answer: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    patch = Patch(piece.text, "", "", "", (Hunk(piece.module, piece.before, piece.after),))
    stages = stages_with(patch)
    for name in models:
        try:
            explored = explore(MODELS[name], stages)
        except Exception as error:  # noqa: BLE001 - whatever a procedure raises without the piece
            answer.send((name, f"fails: {type(error).__name__}"))
            return
        if explored.violation is not None:
            answer.send((name, explored.violation.partition(":")[0]))
            return
        if explored.missing_probes:
            answer.send((name, f"never seen: {explored.missing_probes[0]}"))
            return
    answer.send(("", UNNOTICED))


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at every piece that the results do not have yet, and print what no model noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.left_out", description=__doc__)
    parser.add_argument("--file", type=Path, default=RESULTS)
    parser.add_argument("--states", type=int, default=STATES_MAX, help="models with at most so many states")
    parser.add_argument("--workers", type=int, default=1, help="pieces that are looked at together")
    asked = parser.parse_args(arguments)
    modules = tuple(f"replitree.protocol.{name}" for name in MODULES)
    sizes = {name: PINS[name].states for name in MODELS if not is_nightly(name)}
    names = sorted((name for name, states in sizes.items() if states <= asked.states), key=sizes.__getitem__)
    pieces = [piece for module in modules for piece in find(module, source_of(module))]
    known = {_place(each): each for each in read_lines(asked.file, Noticed)}
    wanted = [piece for piece in pieces if _place(piece) not in known or known[_place(piece)].is_open(asked.states)]
    running = models_that_run({piece.module for piece in wanted}, names) if wanted else {}

    def look_at(piece: LeftOut) -> tuple[LeftOut, Noticed]:
        return piece, look(piece, running.get((piece.module, piece.function), ()), asked.states)

    with ThreadPoolExecutor(asked.workers) as pool:
        for piece, noticed in pool.map(look_at, wanted):
            known[_place(piece)] = noticed
            write_lines(asked.file, [known[_place(each)] for each in pieces if _place(each) in known])
            print(
                f"{piece.module} {piece.function}:{piece.line} {piece.text[:60]}: {noticed.how} {noticed.model}",
                flush=True,
            )
    unnoticed = sum(known[_place(each)].how == UNNOTICED for each in pieces)
    print(f"{len(pieces)} pieces, {unnoticed} not noticed")
    return 0


def _place(piece: LeftOut | Noticed) -> tuple[str, int, str]:
    return piece.module, piece.line, piece.text


def source_of(module: str) -> str:
    return (SOURCES / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
