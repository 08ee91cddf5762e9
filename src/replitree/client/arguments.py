"""Arguments of the public interface are checked in one place: a wrong type is `BadInput` that names the argument.

`check_arguments` wraps a function, or the public methods of a class, and compares each argument with its annotation before the
function begins.  Beyond the type it requires that

* text can be written as UTF-8,
* a whole number fits into 64 bits, and is not a boolean,
* a number is finite.

The values themselves (a level, a range, an unknown column) are checked where they are used.

Absent on purpose: conversions.  The function receives the arguments as the caller passed them.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, wraps
from numbers import Real
from typing import Any, Literal, TypeVar

from replitree.errors import BadInput

SHOWN_CHARACTERS_MAX = 60
"""So much of a wrong value is shown."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_POSITION = "; it is an index of the table's log, such as Snapshot.index or InsertResult.index"
_HINTS = {
    "as_of": f"{_POSITION}, a tag, or a time",
    "min_index": f"{_POSITION}; a time can't be given",
    "where": "; a condition is text, as in 'k = 7', and 'true' means all rows",
}
"""What to give instead, where the type does not say it."""

_T = TypeVar("_T", bound=Callable[..., Any])


def check_arguments(target: _T) -> _T:
    """Wrap a function, or the public methods of a class and its `__init__`, so that they check their arguments.

    Examples
    --------
    >>> @check_arguments
    ... def wait(timeout_s: float) -> float:
    ...     return timeout_s
    >>> wait(timeout_s="abc")
    Traceback (most recent call last):
    replitree.errors.BadInput: wait: timeout_s is a number, not 'abc'
    """
    if not isinstance(target, type):
        return typing.cast(_T, _checked_function(target))
    for name, found in list(vars(target).items()):
        is_public = not name.startswith("_") or name == "__init__"
        if is_public and inspect.isfunction(found):
            setattr(target, name, _checked_function(found))
    return target


def _checked_function(function: Callable[..., Any]) -> Callable[..., Any]:
    positional = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kinds = _kinds(function)
        for name, value in (*zip(positional, args, strict=False), *kwargs.items()):
            kind = kinds.get(name, Any)
            if kind is not Any and not _fits(value, kind):
                text = repr(value)
                shown = text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"
                hint = _HINTS.get(name, "")
                raise BadInput(f"{function.__name__}: {name} is {_named(kind)}, not {shown}{hint}")
        return function(*args, **kwargs)

    return call


@cache
def _kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's arguments; `Any` for those that are only imported for type checkers."""
    # Modules of Spark are imported for type checkers only; their names are not defined at run time.
    names = _Names({**vars(typing), **function.__globals__, **vars(__import__("builtins"))})
    return typing.get_type_hints(function, localns=names)


class _Names(dict[str, Any]):
    """Names that annotations use.  One that is not imported at run time stands for every class of that name."""

    def __missing__(self, name: str) -> type:
        return _Unimported(name, (_ByName,), {})


class _Unimported(type):
    """The class of such names.  One may be that of a module, as in ``pa.Schema``: its attributes are names again."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Unimported(name, (_ByName,), {})


class _ByName(metaclass=_Unimported):
    """A class that is known by its name."""


def _fits(value: Any, kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin is None:
        return kind is Any or _is_one(value, kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in typing.get_args(kind))
    if origin is Literal:
        # The function itself checks the word, and its message lists the words that there are.
        return isinstance(value, str)
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(each, str) for each in value)
    if issubclass(origin, Sequence):
        (element, *_) = typing.get_args(kind)
        is_list = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping | set | frozenset)
        return is_list and all(_fits(each, element) for each in value)
    # A value of any other generic class is checked where it is used.
    return not issubclass(origin, os.PathLike) or isinstance(value, os.PathLike)


def _is_one(value: Any, kind: type) -> bool:
    """Tell whether a value is of a plain class."""
    if kind is str:
        # Text with half of a surrogate pair can't be sent.
        try:
            return isinstance(value, str) and value.encode() is not None
        except UnicodeEncodeError:
            return False
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        # numpy's integers are no `int`, and Python's booleans are.
        try:
            return not isinstance(value, bool) and INT_MIN <= operator.index(value) <= INT_MAX
        except TypeError:
            return False
    if kind is float:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if issubclass(kind, _ByName):
        return any(each.__name__ == kind.__name__ for each in type(value).__mro__)
    return isinstance(value, kind)


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}


def _named(kind: Any) -> str:
    """Say what an argument may be.

    >>> _named(str | Sequence[str] | None)
    'text, a list of text or None'
    """
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        each = list(dict.fromkeys(_named(one) for one in typing.get_args(kind)))
        return f"{', '.join(each[:-1])} or {each[-1]}" if len(each) > 1 else each[0]
    if origin is Literal:
        return ", ".join(map(repr, typing.get_args(kind)))
    if origin is not None and issubclass(origin, Mapping):
        return "a dict"
    if origin is not None and issubclass(origin, Sequence):
        return f"a list of {_named(typing.get_args(kind)[0])}"
    if origin is not None and issubclass(origin, os.PathLike):
        return "a path"
    return _WORDS.get(kind) or f"a {kind.__name__}"
