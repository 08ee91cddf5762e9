"""Leave out each effect and each operation of a commit, and see which model notices: ``python -m tests.verify.left_out``.

What can be left out without a model noticing is either not needed, or needed against something that no model has.  An effect is
looked at whose outcome is not used, such as ``yield fx.Sync(path)``; one whose outcome is used can't be left out.  A model that
runs the function is explored, the smallest first, until one breaks an invariant, fails, or never ends.

The result is ``docs/results/left_out.jsonl``, a line for each; a run that is cut off goes on where it stood.  A piece is known
by its function and its text, so that changes elsewhere do not make its line stale.  With ``--models`` the named models are
explored without what no model has noticed, of whatever size they are.
"""

from __future__ import annotations

import argparse
import ast
import resource
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

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

OPERATIONS = ("Check", "Create", "Set", "Delete", "register", "deregister", "leave_queue")
"""What makes an operation of a commit."""

STATES_MAX = 36_000
"""Larger models are not asked, unless the command says so."""

CPU_S_MAX = 120
"""An exploration of one model that takes longer counts as one that never ends: the procedure repeats itself."""

UNNOTICED = "not noticed"


class Place(NamedTuple):
    """What tells a piece from the others; `number` counts those of one text in one function."""

    module: str
    function: str
    text: str
    number: int


class LeftOut(NamedTuple):
    """What can be left out, in which line it is today, and the function without it."""

    place: Place
    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]


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
    text: str
    number: int
    models: int
    states_max: int
    model: str
    how: str

    @property
    def place(self) -> Place:
        """Which piece it was."""
        return Place(self.module, self.function, self.text, self.number)

    def is_open(self, states_max: int) -> bool:
        """Whether larger models may still notice it."""
        return self.how == UNNOTICED and self.states_max < states_max


def find(module: str, source: str) -> Iterator[LeftOut]:
    """Find what can be left out of a module.

    >>> source = '''
    ... def end(path):
    ...     yield fx.Sync(path)
    ...     found.append(fx.Delete(path, 1))
    ...     yield fx.Commit(fx.Check(path, 1), *others)
    ... '''
    >>> for each in find("m", source):
    ...     each.place.text
    'fx.Sync(path)'
    'found.append(fx.Delete(path, 1))'
    'fx.Commit(fx.Check(path, 1), *others)'
    'fx.Check(path, 1)'
    '*others'
    """
    lines, seen = source.splitlines(), Counter[tuple[str, str]]()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        assert function.end_lineno is not None
        whole = tuple(lines[function.lineno - 1 : function.end_lineno])
        for piece, instead in _pieces(function):
            text = ast.unparse(piece.value if isinstance(piece, ast.Yield) and piece.value else piece)
            seen[function.name, text] += 1
            place = Place(module, function.name, text, seen[function.name, text])
            yield LeftOut(place, piece.lineno, whole, _without(whole, piece, function.lineno, instead))


def _pieces(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    """Return the effects and operations of a function, each with what stands in its place."""
    inner = {
        node
        for each in ast.walk(function)
        if isinstance(each, ast.FunctionDef) and each is not function
        for node in ast.walk(each)
    }
    nodes = [node for node in ast.walk(function) if node not in inner]
    assigned = {node.value: node.targets[0] for node in nodes if isinstance(node, ast.Assign)}
    named = {name for value, target in assigned.items() for name in _operations_named(target, value)}
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Yield(value=ast.expr()) as effect):
                yield effect, "yield from ()"  # the function stays a generator
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append"), args=[element]) as call):
                if _is_operation(element, named):
                    yield call, "None"
            case ast.Call(args=elements) if _name(node) == "Commit":
                yield from ((element, "*()") for element in elements)
            case ast.Tuple(elts=elements, ctx=ast.Load()) | ast.List(elts=elements, ctx=ast.Load()):
                is_unpacked = isinstance(assigned.get(node), ast.Tuple)
                if not is_unpacked and any(_is_operation(element, named) for element in elements):
                    yield from ((element, "*()") for element in elements)


def _operations_named(target: ast.expr, value: ast.expr) -> Iterator[str]:
    """Return the names to which an assignment gives an operation."""
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            yield from (name for each in zip(targets, values, strict=True) for name in _operations_named(*each))
        case ast.Name(id=name), _ if _is_operation(value, ()):
            yield name


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_operation(node: ast.expr, named: Collection[str]) -> bool:
    match node:
        case ast.Call():
            return _name(node) in OPERATIONS
        case ast.Name(id=name):
            return name in named
        case ast.Starred(value=ast.GeneratorExp(elt=element)):
            return _is_operation(element, named)
    return False


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


def look(piece: LeftOut, models: Sequence[str], states_max: int, cpu_s: int = CPU_S_MAX) -> Noticed:
    """Explore models without a piece of the code, in a process of its own, until one notices."""
    context = get_context("forkserver")
    context.set_forkserver_preload(
        ["replitree_verify.models", "replitree_verify.mutants.mutant"]
    )  # the models are read once
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_look, args=(piece, models, cpu_s, theirs))
    process.start()
    theirs.close()
    try:
        model, how = ours.recv()
    except EOFError:  # the process was ended when its time was over
        model, how = "", "does not end"
    process.join()
    return Noticed(*piece.place, len(models), states_max, model, how)


def _look(piece: LeftOut, models: Sequence[str], cpu_s: int, answer: Connection) -> None:
    stages = stages_with(Patch(piece.place.text, "", "", "", (Hunk(piece.place.module, piece.before, piece.after),)))
    for name in models:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
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
    parser.add_argument("--models", nargs="+", default=(), help="these models alone, of any size")
    parser.add_argument("--functions", nargs="+", default=(), help="with --models: pieces of these functions alone")
    parser.add_argument("--cpu", type=int, default=CPU_S_MAX, help="seconds of CPU time for a model")
    asked = parser.parse_args(arguments)
    pieces, sizes = every_piece(), {name: PINS[name].states for name in MODELS if not is_nightly(name)}
    known = {each.place: each for each in read_lines(asked.file, Noticed)}
    if asked.models:
        for piece in pieces:
            before = known.get(piece.place)
            is_wanted = not asked.functions or piece.place.function in asked.functions
            if before is not None and before.how == UNNOTICED and is_wanted:
                noticed = look(piece, asked.models, before.states_max, asked.cpu)
                if noticed.how != UNNOTICED:
                    states_max = max(PINS[name].states for name in asked.models)
                    known[piece.place] = msgspec.structs.replace(noticed, states_max=states_max)
                _tell(asked.file, pieces, known, piece)
        return 0
    wanted = [piece for piece in pieces if piece.place not in known or known[piece.place].is_open(asked.states)]
    least = min((known[each.place].states_max if each.place in known else 0 for each in wanted), default=0)
    names = sorted((name for name in sizes if least < sizes[name] <= asked.states), key=sizes.__getitem__)
    running = models_that_run({piece.place.module for piece in wanted}, names) if wanted else {}

    def look_at(piece: LeftOut) -> tuple[LeftOut, Noticed]:
        asked_before = known.get(piece.place)
        models = running.get((piece.place.module, piece.place.function), ())
        if asked_before is not None:  # the smaller models have not noticed it
            models = [name for name in models if sizes[name] > asked_before.states_max]
        noticed = look(piece, models, asked.states)
        before = 0 if asked_before is None else asked_before.models
        return piece, msgspec.structs.replace(noticed, models=before + noticed.models)

    with ThreadPoolExecutor(asked.workers) as pool:
        for piece, noticed in pool.map(look_at, wanted):
            known[piece.place] = noticed
            _tell(asked.file, pieces, known, piece)
    unnoticed = sum(known[each.place].how == UNNOTICED for each in pieces)
    print(f"{len(pieces)} pieces, {unnoticed} not noticed")
    return 0


def _tell(file: Path, pieces: Sequence[LeftOut], known: Mapping[Place, Noticed], piece: LeftOut) -> None:
    """Write all results, and print what is known of one piece."""
    write_lines(file, [known[each.place] for each in pieces if each.place in known])
    place, noticed = piece.place, known[piece.place]
    print(f"{place.module}:{piece.line} {place.function} {place.text[:60]}: {noticed.how} {noticed.model}", flush=True)


def every_piece() -> list[LeftOut]:
    """Return everything that can be left out of the modules, in their order."""
    modules = (f"replitree.protocol.{name}" for name in MODULES)
    return [piece for module in modules for piece in find(module, source_of(module))]


def source_of(module: str) -> str:
    return (SOURCES / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
