"""Mutants as patches: a unified diff of a production file, applied to the functions of the running process.

A patch file says above its diff what the mutant breaks, which model catches it, and which invariant notices::

    A successor does not wait for the lease of the leader before it.

    model: lease
    invariant: I14

    --- a/src/replitree/tablet/core/lease.py
    +++ b/src/replitree/tablet/core/lease.py
    @@ -88,3 +88,3 @@ def ready_at(accepted: Accepted, fenced_ns: int) -> int:
         ...

The functions that the diff changes get the changed code while the mutant runs.  So a caller that has imported a function by
its name runs the mutant, too, and the mutant can only break code that ships.

A diff is applied where its lines stand, not where its line numbers say: other changes of a file do not make its mutants stale.
Lines that the file does not have, or has twice, are an error.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from replitree.errors import ReplitreeError

_HEAD = re.compile(
    r"(?P<description>.+?)\n\nmodel: (?P<model>.+)\ninvariant: (?P<invariant>\S+)\n\n(?=--- )", re.DOTALL
)
_FILE = re.compile(r"--- a/(?:src|verify)/(?P<path>\S+)\.py\n\+\+\+ b/\S+\n")


class PatchError(ReplitreeError):
    """A patch does not apply any more, or changes what can't be changed while the process runs."""


class Hunk(NamedTuple):
    """Lines of a module, and what takes their place."""

    module: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Patch:
    """A mutant that is a patch.

    Attributes
    ----------
    name
        What it is called: the name of its file.
    description
        What it breaks, for people.
    model, invariant
        The model that catches it, and the invariant that notices; "none" when the change has no effect, and then there may be
        several models, with commas between them.
    hunks
        The changes.
    """

    name: str
    description: str
    model: str
    invariant: str
    hunks: tuple[Hunk, ...]

    @contextmanager
    def mutated(self) -> Iterator[None]:
        """Let the functions run the changed code while the context lasts.

        Raises
        ------
        PatchError
            The patch does not apply.
        """
        for change in self._changes:
            change.do()
        try:
            yield
        finally:
            # In reverse: of two changes of one name the first value comes back last.
            for change in reversed(self._changes):
                change.undo()

    def around(self, stage: Callable[..., Generator[Any, Any, Any]], *arguments: Any) -> Generator[Any, Any, Any]:
        """Run a stage with the changed code, and everything beside it, between its steps, without."""
        with self.mutated():
            procedure = stage(*arguments)
        outcome: Any = None
        while True:
            try:
                # Only while the stage runs: what judges it between its steps calls the same functions as they ship.
                with self.mutated():
                    effect = procedure.send(outcome)
            except StopIteration as stop:
                return stop.value
            outcome = yield effect

    @cached_property
    def _changes(self) -> tuple[_Code | _Value, ...]:
        modules = dict.fromkeys(hunk.module for hunk in self.hunks)
        # Every change is worked out before the first one is made: a patch that does not apply changes nothing.
        changes = [
            change
            for name in modules
            for change in _changes_of(self.name, name, [hunk for hunk in self.hunks if hunk.module == name])
        ]
        if self.hunks and not changes:
            raise PatchError(f"mutant {self.name} changes nothing that runs")
        return tuple(changes)


class PatchedStages(dict[str, Callable[..., Generator[Any, Any, Any]]]):
    """Stages by their names, which run the code that a patch changes.

    Parameters
    ----------
    stages
        As they ship.
    patch
        The change.
    """

    def __init__(self, stages: Mapping[str, Callable[..., Generator[Any, Any, Any]]], patch: Patch) -> None:
        super().__init__({name: partial(patch.around, stage) for name, stage in stages.items()})
        self.patch = patch


def read_patches(room: str) -> tuple[Patch, ...]:
    """Return the mutants of a room, by name.

    Parameters
    ----------
    room
        The name of its folder.

    Raises
    ------
    PatchError
        A file is no patch with a head.
    """
    paths = sorted((Path(__file__).parent / room).glob("*.patch"))
    return tuple(read_patch(path.stem, path.read_text(encoding="utf-8")) for path in paths)


def find_patch(room: str, name: str) -> Patch:
    """Return a mutant of a room by its name."""
    return next(each for each in read_patches(room) if each.name == name)


def read_patch(name: str, text: str) -> Patch:
    """Return the mutant that a file describes.

    Parameters
    ----------
    name
        Its name.
    text
        The content of the file.

    Raises
    ------
    PatchError
        It has no head, or no diff.
    """
    head = _HEAD.match(text)
    if head is None:
        raise PatchError(f"mutant {name} has no head: a description, 'model: …' and 'invariant: …', and then the diff")
    diff, hunks = text[head.end() :], list[Hunk]()
    files = list(_FILE.finditer(diff))
    for file, following in zip(files, [*files[1:], None], strict=True):
        module = file["path"].replace("/", ".")
        body = diff[file.end() : len(diff) if following is None else following.start()]
        # Without its line numbers: a hunk is found by its lines, wherever they stand by now.
        for hunk in re.split(r"^@@.*\n", body, flags=re.MULTILINE)[1:]:
            lines = [line or " " for line in hunk.splitlines()]  # editors strip an empty line's blank
            wrong = [line for line in lines if line[0] not in " +-"]
            if wrong:
                raise PatchError(f"mutant {name} has a line that is neither context nor change: {wrong[0]!r}")
            before = tuple(line[1:] for line in lines if line[0] in " -")
            hunks.append(Hunk(module, before, tuple(line[1:] for line in lines if line[0] in " +")))
    return Patch(name, " ".join(head["description"].split()), head["model"], head["invariant"], tuple(hunks))


# --- from lines to code -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Code:
    """A function whose code is exchanged."""

    function: FunctionType
    before: CodeType
    after: CodeType

    def now(self) -> CodeType:
        return self.function.__code__

    def do(self) -> None:
        self.function.__code__ = self.after

    def undo(self) -> None:
        self.function.__code__ = self.before


@dataclass(frozen=True, slots=True)
class _Value:
    """A name of a module that is new, or has another value."""

    module: ModuleType
    name: str
    before: Any
    after: Any

    def now(self) -> Any:
        return vars(self.module).get(self.name, _ABSENT)

    def do(self) -> None:
        setattr(self.module, self.name, self.after)

    def undo(self) -> None:
        if self.before is _ABSENT:
            delattr(self.module, self.name)
        else:
            setattr(self.module, self.name, self.before)


_ABSENT = object()


def _changes_of(mutant: str, module_name: str, hunks: Sequence[Hunk]) -> Iterator[_Code | _Value]:
    found = importlib.util.find_spec(module_name)
    if found is None or found.origin is None:
        raise PatchError(f"mutant {mutant} changes {module_name}, which is not there")
    whole = Path(found.origin).read_text(encoding="utf-8")
    broken = whole
    for hunk in hunks:
        lines, size = broken.splitlines(), len(hunk.before)
        places = [at for at in range(len(lines) - size + 1) if tuple(lines[at : at + size]) == hunk.before]
        if len(places) != 1:
            where = (
                f"{module_name}: its lines stand there {len(places)} times, beginning with {hunk.before[0].strip()!r}"
            )
            raise PatchError(f"mutant {mutant} does not apply to {where}")
        broken = "\n".join([*lines[: places[0]], *hunk.after, *lines[places[0] + size :], ""])
    module = importlib.import_module(module_name)
    before, after = _parts(ast.parse(whole)), _parts(ast.parse(broken))
    # A name that is gone would stay in the running module, and the mutant would run the old code.
    gone = [name for name in before if name not in after]
    if gone:
        raise PatchError(f"mutant {mutant} removes {gone[0]} of {module_name}: let it do something else instead")
    codes = dict(_codes(compile(broken, found.origin, "exec")))
    for name, node in after.items():
        if name in before and ast.dump(node) == ast.dump(before[name]):
            continue
        if isinstance(node, ast.FunctionDef) and name in before:
            # Only code objects are exchanged: callers go on to use the parameters and decorators of the function as it
            # ships.
            if _surface(node) != _surface(before[name]):
                raise PatchError(f"mutant {mutant} changes the parameters of {name}: let it change what {name} does")
            function = _function(module, name)
            yield _Code(function, function.__code__, codes[name])
        elif "." not in name:
            # Into names of its own: the module gets the value only while the mutant runs.
            values: dict[str, Any] = {}
            tree, future = ast.fix_missing_locations(ast.Module([node], [])), __future__.annotations.compiler_flag
            exec(compile(tree, module.__name__, "exec", future), vars(module), values)  # noqa: S102 - the checker's own files
            yield _Value(module, name, module.__dict__.get(name, _ABSENT), values[name])
        else:
            raise PatchError(f"mutant {mutant} changes {name} of {module_name}, which is neither a function nor global")


def _parts(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Mapping[str, ast.stmt]:
    """Return the functions of a module and its classes, and whatever else binds a name, by qualified name."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        match node:
            case ast.ClassDef():
                found |= _parts(node, f"{prefix}{node.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found[prefix + node.name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[prefix + name] = node
            case ast.Import(names=names):
                found |= {prefix + (alias.asname or alias.name): ast.Import([alias]) for alias in names}
            case ast.ImportFrom(place, names, level):
                # Name by name, as the next case: a patch that imports one name more changes no other.
                found |= {
                    prefix + (alias.asname or alias.name): ast.ImportFrom(place, [alias], level) for alias in names
                }
    return found


def _surface(node: ast.stmt) -> str:
    """Return what a function shows to its callers, and what decorates it: no exchange of its code changes that."""
    assert isinstance(node, ast.FunctionDef)
    return ast.dump(ast.Tuple([node.args, *node.decorator_list]))  # type: ignore[list-item]


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each.co_qualname, each
            yield from _codes(each)


def _function(module: ModuleType, name: str) -> FunctionType:
    """Return a function by its qualified name, without what decorates it."""
    found: Any = module
    for each in name.split("."):
        found = vars(found)[each]
    # Where class and static methods, properties and cached properties keep the function that they wrap.
    for wrapper in ("__func__", "fget", "func"):
        found = getattr(found, wrapper, found)
    function = inspect.unwrap(found)
    assert isinstance(function, FunctionType), name
    return function
