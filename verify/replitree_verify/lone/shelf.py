"""An object store whose requests are moves of a model: before each something else may happen, and its answer may get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from replitree.storage.objects import ObjectChanged, ObjectExists, ObjectStore
from replitree.storage.objects.store import ObjectInfo, StoreInDoubt, TaggedObject

T = TypeVar("T")

_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)

Objects = dict[str, tuple[str, bytes]]
"""Tag and bytes, by key."""


class Shelf(ObjectStore):
    """The store.

    Parameters
    ----------
    before
        Called before each request, with its name and the key.
    loses
        Tells after each request whether its answer gets lost.
    """

    def __init__(self, before: Callable[[str], None], loses: Callable[[], bool]) -> None:
        self.name = "shelf"
        self.objects: Objects = {}
        self._before, self._loses = before, loses
        self._tags = count(1)

    @override
    def get(self, key: str) -> bytes | None:
        self._before(f"GET {key}")
        found = self.objects.get(key)
        return self._answered(None if found is None else found[1])

    @override
    def get_tagged(self, key: str) -> TaggedObject | None:
        self._before(f"GET {key}")
        found = self.objects.get(key)
        return self._answered(None if found is None else TaggedObject(found[1], found[0]))

    @override
    def create(self, key: str, data: bytes | Path) -> None:
        self._before(f"CREATE {key}")
        assert isinstance(data, bytes)
        if key in self.objects:
            # A refusal is not lost: a store in doubt is one that may have done what it was asked.
            raise ObjectExists(key)
        self.objects[key] = str(next(self._tags)), data
        self._answered(None)  # after the write: an answer that gets lost leaves the object there

    @override
    def replace(self, key: str, data: bytes, tag: str) -> None:
        self._before(f"REPLACE {key}")
        if key not in self.objects or self.objects[key][0] != tag:
            raise ObjectChanged(key)
        self.objects[key] = str(next(self._tags)), data
        self._answered(None)

    @override
    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        self._before(f"LIST {prefix}")
        keys = sorted(key for key in self.objects if key.startswith(f"{prefix}/") and key > after)
        yield from self._answered([ObjectInfo(key, len(self.objects[key][1]), _LONG_AGO) for key in keys])

    @override
    def delete(self, keys: Sequence[str]) -> None:
        raise AssertionError("no process collects here")

    def _answered(self, answer: T) -> T:
        if self._loses():
            raise StoreInDoubt("the answer did not come")
        return answer


class AtOnce(Executor):
    """Does what it is given in the caller's thread."""

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised where the result is waited for
            future.set_exception(error)
        return future
