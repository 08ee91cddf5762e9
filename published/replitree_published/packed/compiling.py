"""Functions of plain Python, compiled by numba when it is installed.

A function is compiled with everything of this package that it calls.  The result is kept on disk, in a folder that is named
after the source files of all that is called: numba itself would not notice that a function in another file has changed.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

PACKAGE = "replitree_published.packed."


def can_compile() -> bool:
    """Tell whether numba is there."""
    return find_spec("numba") is not None


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled, and with it those that it calls."""
    return bound(function, "")


def bound(template: Callable[..., Any], name: str, **functions: Callable[..., Any]) -> Callable[..., Any]:
    """Return a template compiled with these functions for its names, whether these have a value or not.

    Parameters
    ----------
    name
        Tells what was compiled for one model from what was compiled for another, on disk.
    """
    import numba

    assert isinstance(template, FunctionType)
    called = _called(template) | functions
    config: Any = numba.config
    config.CACHE_DIR = str(_folder(_sources(template, *called.values())))
    return _jitted(template, name, called, cache=True)


@cache
def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for compiled callers, each of which contains it on disk.

    Numba would also let Python call it, and keep it by itself: that was a third of all compiling.
    """
    assert isinstance(function, FunctionType)
    return _jitted(function, "", _called(function), no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _jitted(
    function: FunctionType, name: str, called: Mapping[str, Callable[..., Any]], **options: Any
) -> Callable[..., Any]:
    import numba

    names = function.__globals__ | {each: _inner(inner) for each, inner in called.items()}
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    copy.__qualname__ = f"{function.__qualname__}_{name}"
    copy.__module__ = function.__module__
    made: Callable[..., Any] = numba.njit(**options)(copy)
    return made


def _called(function: FunctionType) -> dict[str, Callable[..., Any]]:
    """Return the functions of this package that a function calls."""
    names = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {
        name: called
        for name, called in names.items()
        if isinstance(called, FunctionType) and called.__module__.startswith(PACKAGE)
    }


def _sources(*functions: Callable[..., Any]) -> frozenset[str]:
    """Return the files that these functions, and all that they call, are written in."""
    found: set[str] = set()
    for function in functions:
        assert isinstance(function, FunctionType)
        found |= {function.__code__.co_filename} | _sources(*_called(function).values())
    return frozenset(found)


@cache
def _folder(sources: frozenset[str]) -> Path:
    """Return where what is compiled from these files is kept: in the environment if that can be written to."""
    digest = hashlib.sha256(b"".join(Path(source).read_bytes() for source in sorted(sources))).hexdigest()[:16]
    for place in (Path(sys.prefix) / "cache", Path(tempfile.gettempdir())):
        folder = place / "replitree-verify" / digest
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        return folder
    return Path(tempfile.mkdtemp(prefix="replitree-verify-"))
