"""The words of traces: paths, commits and names in short, and what clients hear."""

from __future__ import annotations

import re
from typing import Any

from replitree.protocol.core import effects as fx
from replitree_verify.process.read_requests import NotShown, Shown, Told
from replitree_verify.world.model import TABLE

_NUMBER = re.compile(r"-0{0,9}(\d+)$")


def path_text(path: str, replica: str) -> str:
    """Shorten a path: below the replica's own node, or below the table; numbers without zeros.

    >>> path_text("/t/replicas/r1/queue/queue-0000000007", "r1"), path_text("/t/log/log-0000000000", "r1")
    ('queue/queue-7', 'log/log-0')
    """
    short = path.removeprefix(f"{TABLE.path}/").removeprefix(f"replicas/{replica}/")
    return _NUMBER.sub(r"-\1", short)


def paths_text(paths: tuple[str, ...], replica: str) -> str:
    """Return paths in short."""
    short = [path_text(path, replica) for path in paths]
    return ", ".join(short) if len(short) <= 3 else f"{short[0]} … {short[-1]}"


def commit_text(operations: tuple[fx.Operation, ...], replica: str) -> str:
    """Return the operations of a commit in words."""
    words = []
    for operation in operations:
        path = path_text(operation.path, replica)
        match operation:
            case fx.Check(version=version):
                words.append(f"check {path}@{version}")
            case fx.Create(ephemeral=ephemeral):
                words.append(f"create {path}{' (ephemeral)' if ephemeral else ''}")
            case fx.Set(value=value, version=version):
                words.append(f"set {path}@{version} to {value.decode()}")
            case fx.Delete():
                words.append(f"delete {path}")
    return ", ".join(words)


def indexes_text(entries: tuple[Any, ...]) -> str:
    """Return the indexes of entries."""
    return ", ".join(str(item.index) for item in entries) or "-"


def names_text(parts: tuple[tuple[str, str], ...]) -> str:
    """Return the names of parts that stand with their contents."""
    return ", ".join(name for name, _ in parts)


def answer_text(answer: Told) -> str:
    """Return what a client hears."""
    match answer:
        case fx.Inserted(index, settled):
            return f"inserted at {index}{_settled(settled)}"
        case fx.Duplicate(index, settled):
            return f"duplicate of {'an insert that is gone' if index is None else index}{_settled(settled)}"
        case fx.NotInserted(reason):
            return f"failed: {reason}"
        case fx.MaybeInserted():
            return "outcome unknown"
        case Shown(position, requests):
            return f"the rows of {list(requests)}, everything below {position}"
        case NotShown(reason):
            return f"nothing: {reason}"


def _settled(index: fx.LogIndex | None) -> str:
    return "" if index is None else f", settled at {index}"
