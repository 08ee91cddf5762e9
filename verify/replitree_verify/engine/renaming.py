"""Values with other names: what a state would be if replicas, requests and tokens were called otherwise.

Names stand in paths, in the values of nodes, in the ids of processes and of what is staged, and in the contents of parts.
They are found by their form: ``r1`` between characters that no name has, ``r1a`` (a process), ``r1a-3`` (what request 3
stages there), ``all:1+3`` (the rows of two requests), ``/blocks/a`` and ``"blocks":["a"]`` (tokens).  What is kept in the
order of names is in that order again afterwards.

Nothing relies on this being complete: `symmetry` compares what follows from a state with what follows from the renamed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec

from replitree.coordination.tree import PERSISTENT, Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core.part_set import PartSet
from replitree_verify.world.disk import Disk
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import SESSIONS_PER_SEAT

REQUESTS = frozenset({"id", "request", "requests", "number", "known"})
"""Fields of values that have numbers of requests, where they have integers."""

TOKENS = frozenset({"block", "blocks"})
"""Fields of values that have tokens."""

ARGUMENTS: dict[str, tuple[int, ...]] = {
    "accept_insert": (1,),
    "accept_command": (1,),
    "give_command": (2,),
    "begin_read": (1, 3),
    "find_position": (1,),
    "show_rows": (0,),
}
"""The arguments of stages that have numbers of requests."""

LAST_ADDED = b"last added: "
"""Begins the value that tells people which replica has joined last.  It stays as it is: no procedure decides by it."""

_CONTENT = re.compile(r"(?<=\w):(\d+[\w~+]*)")
_BLOCK = re.compile(r"(?<=/blocks/)[^/\"]+")
_BLOCKS = re.compile(r"(?<=\"blocks\":\[)[^]]*(?=])")
_QUOTED = re.compile(r"\"([^\"]*)\"")
_LIST = re.compile(r"\[\"[^\"]*\"(?:,\"[^\"]*\")+]")


@dataclass(frozen=True, slots=True)
class Names:
    """Which name stands for which.

    Attributes
    ----------
    replicas
        Of replicas and seats.
    requests, tokens
        Of requests, by number, and of their tokens.
    seats
        The number of the seat that each seat becomes.
    """

    replicas: Mapping[str, str]
    requests: Mapping[int, int]
    tokens: Mapping[str, str]
    seats: tuple[int, ...]


class Renaming:
    """Renames values.

    Parameters
    ----------
    names
        Which name stands for which.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        # Longest first: an alternation takes the first that fits, and `r1` would take the beginning of `r12`.
        alternatives = "|".join(sorted(names.replicas, key=len, reverse=True))
        self._name = re.compile(rf"(?<![A-Za-z0-9])({alternatives})([a-z]?)(?:-(\d+))?(?![A-Za-z0-9])")
        self._is_id = re.compile(rf"({alternatives})([a-z](-\d+[.\w]*)?)?").fullmatch
        self._texts: dict[str, str] = {}

    # --- text -------------------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Return a path, a name, an id or a value with other names."""
        found = self._texts.get(text)
        if found is None:  # the same few paths and values stand in every tree
            found = _CONTENT.sub(self._rows, self._name.sub(self._id, text))
            if self._names.tokens:
                found = _BLOCK.sub(lambda match: self._token(match[0]), found)
                found = _BLOCKS.sub(
                    lambda match: _QUOTED.sub(lambda quoted: f'"{self._token(quoted[1])}"', match[0]), found
                )
            found = self._texts[text] = _LIST.sub(self._ordered, found)
        return found

    def _id(self, match: re.Match[str]) -> str:
        request = "" if match[3] is None else f"-{self._request(int(match[3]))}"
        return f"{self._names.replicas[match[1]]}{match[2]}{request}"

    def _rows(self, match: re.Match[str]) -> str:
        rows = match[1].split("+")
        renamed = [
            f"{self._request(int(number))}{mark}{rest}" for number, mark, rest in (r.partition("~") for r in rows)
        ]
        # Rows that were in order are again; others keep theirs, which says in which order parts were merged.
        return f":{'+'.join(sorted(renamed) if rows == sorted(rows) else renamed)}"

    def _ordered(self, match: re.Match[str]) -> str:
        names = _QUOTED.findall(match[0])
        if not set(self._names.replicas).issuperset(names):
            return match[0]
        quoted = ",".join(f'"{name}"' for name in sorted(names))
        return f"[{quoted}]"

    def _request(self, number: int) -> int:
        return self._names.requests.get(number, number)

    def _token(self, token: str) -> str:
        return self._names.tokens.get(token, token)

    def session(self, session: int) -> int:
        """Return the session of the seat that a session's seat becomes."""
        seat, number = divmod(session, SESSIONS_PER_SEAT)
        return session if session == PERSISTENT else self._names.seats[seat] * SESSIONS_PER_SEAT + number

    # --- values -----------------------------------------------------------------------------------------------------------

    def value(self, value: Any) -> Any:
        """Return any value with other names."""
        special = _SPECIAL.get(type(value))  # by the exact type: a named tuple is not a row
        if special is not None:
            return special(self, value)
        if isinstance(value, msgspec.Struct):
            changed = {name: self._field(name, getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **changed)
        if is_dataclass(value) and not isinstance(value, type):
            return type(value)(*(self._field(each.name, getattr(value, each.name)) for each in fields(value)))
        if isinstance(value, frozenset):
            return frozenset(map(self.value, value))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._field(name, getattr(value, name)) for name in value._fields))
        assert value is None or isinstance(value, int | float | Enum | msgspec.UnsetType) or callable(value), value
        return value

    def _field(self, name: str, value: Any) -> Any:
        if name in REQUESTS:
            return self.requests(value)
        if name in TOKENS:
            return self._token(value) if isinstance(value, str) else tuple(self._token(token) for token in value)
        return self.session(value) if name == "session" else self.value(value)

    def requests(self, value: Any) -> Any:
        """Return the same of a value whose integers are numbers of requests."""
        if isinstance(value, tuple):
            return tuple(map(self.requests, value))
        return self._request(value) if isinstance(value, int) else self.value(value)

    def arguments(self, stage: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of a stage with other names."""
        asked = ARGUMENTS.get(stage, ())
        renamed = (self.requests(each) if at in asked else self.value(each) for at, each in enumerate(arguments))
        if stage != "accept_insert":
            return tuple(renamed)
        # An insert begins with plain pairs (request, token): no field has a name by which `value` would find the token.
        return tuple(
            tuple((pair[0], self._token(pair[1])) if isinstance(pair, tuple) else pair for pair in each)
            if isinstance(each, tuple)
            else each
            for each in renamed
        )

    def outcome(self, effect: Any, outcome: Any, asked: Any) -> Any:
        """Return the outcome of an effect as the outcome of `asked`, which is that effect with other names."""
        match effect, outcome, asked:
            case fx.Children() | fx.ListStaging() | fx.ListParts(), tuple(), _:
                return tuple(sorted(map(self.text, outcome)))
            case fx.CurrentSession(), int(), _:
                return self.session(outcome)
            case fx.GetMany(paths), fx.Many(nodes, watched), fx.GetMany(others):
                named = dict(zip(map(self.text, paths), map(self.value, nodes), strict=True))
                return fx.Many(tuple(named[path] for path in others), watched)
        return self.value(outcome)

    # --- what has an order or a form of its own ---------------------------------------------------------------------------

    def raw(self, value: bytes) -> bytes:
        """Return the value of a node with other names."""
        return value if value.startswith(LAST_ADDED) else self.text(value.decode()).encode()

    def row(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a tuple with other names; ids that were in order are so again."""
        renamed = tuple(map(self.value, value))
        are_ids = len(value) > 1 and all(isinstance(each, str) and self._is_id(each) for each in value)
        return tuple(sorted(renamed)) if are_ids and value == (*sorted(value),) else renamed

    def memory(self, value: Memory) -> Memory:
        """Return a process's memory with other names."""
        renamed = (self._field(each.name, getattr(value, each.name)) for each in fields(value))
        memory = Memory(*renamed)
        # The class keeps the ids in order; it is frozen, and `replace` would build it a second time.
        object.__setattr__(memory, "staging", tuple(sorted(memory.staging)))
        return memory

    def disk(self, value: Disk) -> Disk:
        """Return a disk with other names."""
        folders = sorted(map(self.value, value.folders), key=lambda each: each.staging)
        return Disk(
            tuple(folders), tuple(sorted(map(self.value, value.parts))), tuple(sorted(map(self.text, value.aside)))
        )

    def commit(self, value: fx.Commit) -> fx.Commit:
        """Return a commit with other names."""
        return fx.Commit(*map(self.value, value.operations))

    def tree(self, value: Tree) -> Tree:
        """Return coordination with other names."""
        return value.renamed(self.text, self.raw, self.session)


_SPECIAL: dict[type, Callable[[Renaming, Any], Any]] = {
    str: Renaming.text,
    bytes: Renaming.raw,
    tuple: Renaming.row,
    Memory: Renaming.memory,
    Disk: Renaming.disk,
    fx.Commit: Renaming.commit,
    Tree: Renaming.tree,
    PartSet: lambda _, value: value,
}
