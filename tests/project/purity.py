"""A lint for `protocol/`: what keeps a procedure a pure function of its arguments and of the outcomes it is sent.

The explorer rebuilds a state by running a procedure again, and the simulator promises the same trace for the same seed under
every hash seed.  Both break, silently, as soon as something else than arguments and outcomes decides.  So there are no clocks,
no randomness, no input or output, no logging, no threads and no shared state, and no *order* that is not in the data: a set is
iterated in the order of its hashes.

The lint sees names, not types.  It knows a set by how it was made (a display, a comprehension, `set(…)`, set operators and
methods) and by annotations, within one function.  What it can't see is left to the tests that run the traces under several
hash seeds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tests.project.source import Function

ALLOWED = (
    "__future__", "abc", "bisect", "collections", "collections.abc", "dataclasses", "enum", "functools", "heapq", "itertools",
    "math", "operator", "re", "string", "struct", "types", "typing",
    "msgspec", "typing_extensions",
)  # fmt: skip
"""What `protocol/` may import besides itself and the errors."""

OWN = ("replitree.protocol", "replitree.errors", "replitree.decoding")

TABLET = ("replitree.tablet", "xxhash")
"""What `tablet/` may import besides."""

KEEPER = ("replitree.keeper", "base64", "hashlib", "hmac", "ipaddress", "xxhash")
"""What `keeper/core/` may import besides: hashes and addresses are functions of their arguments."""

INSTEAD = {
    "asyncio": "yield an effect",
    "datetime": "take the time as an argument",
    "kazoo": "yield Get, Commit, …",
    "logging": "return what happened; the caller logs",
    "os": "yield an effect",
    "pathlib": "the protocol knows names, not files",
    "pyarrow": "the protocol sees names, sizes, indexes and hashes; rows live in storage",
    "random": "take the random choice as an argument",
    "socket": "yield an effect",
    "threading": "a procedure has no threads; its interpreter may",
    "time": "take the time as an argument",
    "uuid": "take the id as an argument",
}
"""What to do instead, for those that are tempting."""

BANNED_CALLS = {
    "breakpoint": "leave no debugging behind",
    "eval": "decide with a table",
    "exec": "decide with a table",
    "hash": "the hash of a string differs from process to process; take a content hash as an argument",
    "id": "an address decides nothing; give it a name",
    "input": "take it as an argument",
    "open": "yield an effect",
    "print": "return what happened; the caller prints",
}

ORDER_DOES_NOT_MATTER = ("all", "any", "frozenset", "len", "max", "min", "set", "sorted")
"""Functions that may be given a set, for their result does not depend on its order."""

ORDER_MATTERS = ("dict", "enumerate", "filter", "iter", "list", "map", "next", "reversed", "sum", "tuple", "zip")
"""Functions whose result, or what they do first, depends on the order of what they are given."""

SET_METHODS = ("difference", "intersection", "symmetric_difference", "union")
SET_TYPES = ("AbstractSet", "FrozenSet", "MutableSet", "Set", "frozenset", "set")


def violations(tree: ast.Module, more: tuple[str, ...] = ()) -> list[str]:
    """Return what breaks the rules, one line each: line number, what, and what to do instead.

    `more`: what may be imported besides.
    """
    found = [*_imports(tree, more), *_calls(tree), *_statements(tree), *_set_iterations(tree)]
    return [f"{line}: {what}" for line, what in sorted(found)]


# --- imports, calls, statements -----------------------------------------------------------------------------------------


def _imports(tree: ast.Module, more: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=module):
                names = [module or "."]
            case _:
                continue
        for name in names:
            if name not in ALLOWED and not _is_own(name, (*OWN, *more)):
                yield (
                    node.lineno,
                    f"import of {name}: {INSTEAD.get(name.partition('.')[0], 'it is not known to be pure')}",
                )


def _is_own(name: str, owned: tuple[str, ...]) -> bool:
    return any(name == own or name.startswith(f"{own}.") for own in owned)


def _calls(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Find calls that decide by something else.  `__hash__` may use `hash`: it only tells values apart faster."""
    hashing = {node for method in ast.walk(tree) if _is_hash_method(method) for node in ast.walk(method)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="hash")) if node in hashing:
                continue
            case ast.Call(func=ast.Name(id=name)) if name in BANNED_CALLS:
                yield node.lineno, f"{name}(): {BANNED_CALLS[name]}"


def _is_hash_method(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__hash__"


def _statements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Global() | ast.Nonlocal():
                yield node.lineno, "global or nonlocal: state that outlives a call is an argument and a result"
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield node.lineno, "async: a procedure is a generator that yields effects"


# --- iteration over sets ------------------------------------------------------------------------------------------------


def _set_iterations(tree: ast.Module) -> Iterator[tuple[int, str]]:
    shared = _set_names(tree)
    for scope in _scopes(tree):
        names = shared | _set_names(scope)
        nodes = list(_own_nodes(scope))
        free = [argument for node in nodes for argument in _order_free(node)]
        for node in nodes:
            for iterated in [] if node in free else _iterated(node):
                if is_set(iterated, names):
                    yield iterated.lineno, f"iteration over the set {ast.unparse(iterated)}: sort it first"


def _order_free(node: ast.AST) -> list[ast.expr]:
    """Return the arguments of a call, or the elements of a set, whose order does not show in the result."""
    match node:
        case ast.Set(elts=elements):
            return elements
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in ORDER_DOES_NOT_MATTER:
            return arguments
    return []


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, Function))


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a scope but those of the functions inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, Function):
            yield from _own_nodes(child)


def _iterated(node: ast.AST) -> Sequence[ast.expr]:
    """Return what `node` iterates over, where the order of the elements shows in the result."""
    match node:
        case ast.For(iter=iterated) | ast.Starred(value=iterated) | ast.YieldFrom(value=iterated):
            return [iterated]
        case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops) | ast.DictComp(generators=loops):
            return [loop.iter for loop in loops]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in ORDER_MATTERS:
            return arguments
        case ast.Call(func=ast.Attribute(attr="join" | "extend" | "fromkeys"), args=arguments):
            return arguments
        case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]):
            return [value]
    return []


def _set_names(scope: ast.AST) -> frozenset[str]:
    """Names that are sets in this scope: by annotation, or by what is assigned to them."""
    names: set[str] = set()
    if isinstance(scope, Function):
        arguments = scope.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if _is_set_type(argument.annotation):
                names.add(argument.arg)
    for node in _own_nodes(scope):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if _is_set_type(annotation):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_set(value, frozenset(names)):
                names.add(name)
    return frozenset(names)


def _is_set_type(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SET_TYPES
        case ast.Subscript(value=value):
            return _is_set_type(value)
        case ast.BinOp(left=left, right=right):
            return _is_set_type(left) or _is_set_type(right)
    return False


def is_set(expression: ast.expr, names: frozenset[str]) -> bool:
    """Tell whether an expression makes a set, given the names that are sets."""
    match expression:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(attr=method)):
            return method in SET_METHODS
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.BitXor() | ast.Sub(), right=right):
            return is_set(left, names) or is_set(right, names)
        case ast.IfExp(body=body, orelse=orelse):
            return is_set(body, names) or is_set(orelse, names)
    return False
