"""One object store: objects are created, read, listed and deleted; few are ever replaced.

Guarantees:

* `create` returns when the object is there as a whole and durable (a folder's files are synced), and no other writer's object
  was replaced.  When the store says that the object exists, and an earlier try went without an answer, the object is compared:
  what has our bytes is ours.
* `replace` puts other bytes in the place of those that were read, and of no others.
* A reader sees an object whole or not at all.
* An answer that never came is asked for again, a little later each time, until `patience_s` is over.  Then reading has failed
  (`StoreError`), and whether something was stored or deleted is not known (`StoreInDoubt`): the object may also appear later.
* Refused credentials are looked for once more, and tried again if there are others (`NotAuthorized`).  While their provider
  does not answer, the request waits, as for the store.  A full disk is not waited for.

Keys are unique by agreement: the creator of an object puts an unguessable id into its key.  Stores take large objects in
pieces, and our client gives them no condition for that: it is asked first whether there is an object, and between that
question and the last piece only the agreement keeps another process from creating one.  A piece whose answer did not come is
sent again by itself, and not all of the object.  When the last answer did not come, the object is read and compared.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from replitree import private
from replitree.errors import BadInput, NotAuthorized, StoreError
from replitree.storage.files.durable import sync_files, sync_folder
from replitree.storage.objects.folder import NotAsItWas, read_file, remove_empty, replace_file, sync_gone
from replitree.storage.objects.identity import ProviderAway
from replitree.storage.objects.location import BUCKETS

if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion
    from obstore.store import ObjectStore as RawStore

_T = TypeVar("_T")

PIECES_BYTES = 64 << 20
"""Larger objects travel in pieces."""

PIECE_BYTES = 16 << 20
PIECES_AT_ONCE = 4
PIECE_TRIES = 20
PIECE_PATIENCE_S = 180.0
"""How often, and for how long, one piece is sent again."""

DELETES_AT_ONCE = 8

LIST_OBJECTS = 1000
"""Objects that are asked for at once: what one answer of a bucket can hold."""

PATIENCE_S = 30.0
PAUSE_S = 0.05
PAUSE_S_MAX = 2.0

_KEY = re.compile(r"[A-Za-z0-9._=~+-]+(?:/[A-Za-z0-9._=~+-]+)*")
_REFUSED = (PermissionDeniedError, UnauthenticatedError)
_OF_AMAZON, _OF_GOOGLE, _OF_AZURE = (f"{scheme}:" for scheme in BUCKETS)
_NO_ROOM = "os error 28"


class ObjectExists(StoreError):
    """There is another object with this key."""


class ObjectChanged(StoreError):
    """The object is not as it was read: another process has replaced it, or deleted it."""


class StoreInDoubt(StoreError):
    """The store gave no answer: what was asked of it may have happened, or may still happen."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as the store tells of it; `modified` is by the store's clock, `tag` is of these bytes and no others."""

    key: str
    bytes: int
    modified: datetime
    tag: str = ""


@dataclass(frozen=True, slots=True)
class TaggedObject:
    """An object's bytes, and the tag that these bytes have in the store and no others."""

    data: bytes
    tag: str


class ObjectStore:
    """Objects below one prefix of a store.  Any thread may use it.

    Parameters
    ----------
    raw
        The client, which tries every request once.
    pieces
        The client for uploads in pieces, which tries each of them again; by default the same.
    name
        URL for messages, without secrets.
    folder
        Where the objects of a store in a local folder lie, to sync them.
    renew
        Returns both clients with other credentials when theirs were refused; None: there are no others.  Never called by two
        threads at once.
    patience_s
        How long answers are waited for, in seconds, over all tries.
    wait
        Waits so many seconds.
    """

    def __init__(
        self,
        raw: RawStore,
        name: str,
        *,
        pieces: RawStore | None = None,
        folder: Path | None = None,
        renew: Callable[[], tuple[RawStore, RawStore] | None] = lambda: None,
        patience_s: float = PATIENCE_S,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.name = name
        # Google's condition names the generation of an object; it is the only store whose client gives one.
        self._has_generations = name.startswith(_OF_GOOGLE)
        self._raw = raw
        self._pieces = pieces or raw
        self._folder = folder
        self._renew = renew
        self._renewing = threading.Lock()
        self._patience_s = patience_s
        self._wait = wait

    def __repr__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Return the URL."""
        return f"ObjectStore({self.name!r})"

    # --- one object -----------------------------------------------------------------------------------------------------------

    def create(self, key: str, data: bytes | Path) -> None:
        """Store an object that is not there yet.

        Parameters
        ----------
        key
            Words of ``A-Za-z0-9._=~+-`` with slashes in between.
        data
            Its bytes, or the file that has them.

        Raises
        ------
        ObjectExists
            Another object has the key.
        StoreInDoubt
            No answer: the object may be there, now or later.
        NotAuthorized, StoreError
            It was refused, and is not there.
        FileNotFoundError
            There is no such file as `data`.
        """
        _check_key(key)
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        # Whether one of our own tries went without an answer: only then an existing object may be ours.
        in_doubt = False

        def put() -> None:
            nonlocal in_doubt
            try:
                self._put(key, data, size)
            except FileNotFoundError as error:
                # A bucket that is missing answers a write with "not found".
                raise StoreError(f"{self.name} is not there: {_first_line(error)}; make the bucket first") from error
            except (AlreadyExistsError, PreconditionError) as error:
                if self._meta(key) is None:
                    raise  # another process is about to create it, and may fail
                if not (in_doubt and self._has(key, data, size)):
                    raise ObjectExists(f"{self.name} has another object {key}") from error
            except BaseError:
                in_doubt = True
                raise

        self._ask(f"store {key}", put, changes=True)
        if self._folder is not None:
            # A delete may have removed the parents, empty as they were: the library makes them anew as the umask says.
            # The outermost folder first: `fit` takes the mode from the parent.
            for part in (*reversed(Path(key).parents[:-1]), Path(key)):
                private.fit(self._folder / part)
            path = self._folder / key
            with _in_doubt(f"{path} was stored and can't be synced"):
                # The content first, then each name above it, up to the store's own folder.
                sync_files([path])
                for parent in path.parents:
                    sync_folder(parent)
                    if parent == self._folder:
                        break

    def get(self, key: str) -> bytes | None:
        """Read a whole object; None when there is none."""
        _check_key(key)
        return self._find(f"read {key}", lambda: bytes(obstore.get(self._raw, key).bytes()))

    def get_tagged(self, key: str) -> TaggedObject | None:
        """Read a whole object, to replace it; None when there is none."""
        _check_key(key)
        return self._find(f"read {key}", partial(self._tagged, key))

    def replace(self, key: str, data: bytes, tag: str) -> None:
        """Put other bytes in the place of an object's, if these are still the ones that were read.

        A process that has lost the answer to its replacement reads the object to find out whether it was replaced.  So the
        bytes must be such that no other process writes the same, and no object gets bytes that it had before.

        Parameters
        ----------
        key, data
            As of `create`.
        tag
            Of what `get_tagged` has read.

        Raises
        ------
        ObjectChanged
            It has other bytes, or is gone.  After an answer was lost, ours may have been there in between.
        StoreInDoubt
            No answer: it may be done, now or later.
        NotAuthorized, StoreError
            It was refused, and is not done.
        """
        _check_key(key)
        mode: UpdateVersion = {"version": tag} if self._has_generations else {"e_tag": tag}
        in_doubt = False

        def put() -> None:
            nonlocal in_doubt
            try:
                if self._folder is None:
                    obstore.put(self._raw, key, data, mode=mode, use_multipart=False)
                else:
                    replace_file(self._folder / key, self._folder, data, tag)
            except (AlreadyExistsError, PreconditionError, FileNotFoundError, NotAsItWas) as error:
                try:
                    found = self._tagged(key)
                except FileNotFoundError:
                    found = None
                if found is not None and found.tag == tag and isinstance(error, BaseError):
                    raise  # another process is about to replace it, and may fail
                if found is None or not (in_doubt and found.data == data):
                    raise ObjectChanged(f"the object {key} of {self.name} is not as it was") from error
            except BaseError:
                in_doubt = True
                raise

        self._ask(f"replace {key}", put, changes=True)

    def get_range(self, key: str, first: int, size: int) -> bytes | None:
        """Read `size` bytes of an object from byte `first` on; None when there is none.

        Raises
        ------
        StoreError
            The object is shorter.
        """
        # A range of no bytes is asked of no store: only whether the object is there.
        info = None if size else self.head(key)
        if not size:
            return None if info is None else b""

        def read() -> bytes:
            try:
                return bytes(obstore.get_range(self._raw, key, start=first, length=size))
            # Stores say in many ways that there are fewer bytes.
            except BaseError:
                found = obstore.head(self._raw, key)
                if found["size"] < first + size:
                    return b""
                raise

        _check_key(key)
        data = self._find(f"read {key}", read)
        if data is not None and len(data) != size:
            raise StoreError(f"the object {key} of {self.name} ends before byte {first + size}")
        return data

    def head(self, key: str) -> ObjectInfo | None:
        """Ask for an object's size, time and tag; None when there is none."""
        _check_key(key)
        found = self._find(f"look at {key}", lambda: obstore.head(self._raw, key))
        return None if found is None else ObjectInfo(key, found["size"], found["last_modified"], found["e_tag"] or "")

    # --- many -----------------------------------------------------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, durably; those that are gone already do not matter.

        Raises
        ------
        StoreInDoubt
            No answer: some may be there, and may still go.  Or a folder could not be synced: they may come back.
        """
        for key in keys:
            _check_key(key)
        if self.name.startswith(_OF_AMAZON):
            if keys:
                self._ask(f"delete {len(keys)} objects", lambda: obstore.delete(self._raw, list(keys)), changes=True)
            return

        def delete(key: str) -> None:
            self._find(f"delete {key}", partial(obstore.delete, self._raw, key), changes=True)

        # One by one, since one that is missing ends the library's list; of a server that is far away several at once.
        if self._folder is None and len(keys) > 1:
            with ThreadPoolExecutor(DELETES_AT_ONCE) as pool:
                list(pool.map(delete, keys))
            return
        for key in keys:
            delete(key)
        if self._folder is not None:
            with _in_doubt(f"what was deleted in {self.name} may come back"):
                sync_gone(self._folder / key for key in keys)

    def tidy(self, prefix: str) -> None:
        """Remove the folders of a prefix below which no process creates objects any more; only a store in a folder has any.

        Raises
        ------
        StoreInDoubt
            Some may be there, or come back.
        """
        _check_key(prefix)
        if self._folder is not None:
            with _in_doubt(f"the folder {prefix} of {self.name} may be left"):
                remove_empty(self._folder / prefix)

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """List the objects whose keys begin with the words of `prefix`, after the key `after`.

        Those of a bucket come in the order of their keys.
        An object that is created or deleted meanwhile may be listed or not; every other one is listed once.
        """
        if prefix:
            _check_key(prefix)
        last = after
        # Each page is asked for by itself: a listing that fails in the middle goes on after the last key.
        while (chunk := self._chunk(prefix, last)) is not None:
            for info in chunk:
                yield info
                last = info.key
            if not self.is_ordered or len(chunk) < LIST_OBJECTS:
                return

    @property
    def is_folder(self) -> bool:
        """Whether the objects are files of a local folder."""
        return self._folder is not None

    @property
    def is_ordered(self) -> bool:
        """Whether a listing comes in the order of keys, and can begin after any of them."""
        return self.name.startswith((_OF_AMAZON, _OF_GOOGLE))

    def _chunk(self, prefix: str, after: str) -> Sequence[ObjectInfo] | None:
        """Ask for the next objects, or for all of a store that has them in no order; None when there are no more."""

        def ask() -> Sequence[ObjectInfo]:
            # Azure's client would ask the server to begin there, which not every one does.
            offset = None if self.name.startswith(_OF_AZURE) else after or None
            stream = obstore.list(self._raw, prefix or None, offset=offset, chunk_size=LIST_OBJECTS)
            # In no order there is no "after the last key": everything comes in one answer.
            found = next(iter(stream), []) if self.is_ordered else [each for chunk in stream for each in chunk]
            return [
                ObjectInfo(each["path"], each["size"], each["last_modified"]) for each in found if each["path"] > after
            ]

        return self._find(f"list {prefix or 'everything'}", ask) or None

    # --- tries ----------------------------------------------------------------------------------------------------------------

    def _put(self, key: str, data: bytes | Path, size: int) -> None:
        self._check_folder()
        if size <= PIECES_BYTES:
            self._make_parents(key)
            obstore.put(self._raw, key, data, mode="create", use_multipart=False)
            return
        # Our client gives uploads in pieces no condition: the look comes first, unguessable keys do the rest.
        if self._meta(key) is not None:
            raise AlreadyExistsError(key)
        self._make_parents(key)
        try:
            obstore.put(
                self._pieces, key, data, use_multipart=True, chunk_size=PIECE_BYTES, max_concurrency=PIECES_AT_ONCE
            )
        # It may also be that the upload was completed, and its answer lost.
        except (BaseError, FileNotFoundError) as error:
            if self._meta(key) is None:
                raise
            # An object of the same size may still be another writer's.
            if not self._has(key, data, size):
                raise AlreadyExistsError(key) from error

    def _check_folder(self) -> None:
        if self._folder is not None and not self._folder.is_dir():
            raise StoreError(f"the folder {self._folder} is not there: is its disk mounted?")

    def _make_parents(self, key: str) -> None:
        """Make the folders of an object in a folder, with the modes of its tree; the library would take those of the umask."""
        if self._folder is not None and "/" in key:
            with suppress(OSError):  # the library says what is wrong
                # Never the store's own folder: its disk may be away, and the mount point would be written to.
                for parent in reversed(Path(key).parents[:-1]):
                    private.make_folder(self._folder / parent, exist_ok=True)
            self._check_folder()

    def _tagged(self, key: str) -> TaggedObject:
        if self._folder is not None:
            return TaggedObject(*read_file(self._folder / key))
        found = obstore.get(self._raw, key)
        tag = found.meta["version"] if self._has_generations else found.meta["e_tag"]
        return TaggedObject(bytes(found.bytes()), tag or "")

    def _meta(self, key: str) -> ObjectMeta | None:
        """Ask once what the store says of an object."""
        try:
            return obstore.head(self._raw, key)
        except FileNotFoundError:
            return None

    def _has(self, key: str, data: bytes | Path, size: int) -> bool:
        """Tell whether an object has exactly these bytes; read it piece by piece."""
        found = self._meta(key)
        if found is None or found["size"] != size:
            return False
        with data.open("rb") if isinstance(data, Path) else BytesIO(data) as source:
            for first in range(0, size, PIECE_BYTES):
                expected = source.read(PIECE_BYTES)
                try:
                    piece = obstore.get_range(self._raw, key, start=first, length=len(expected))
                except FileNotFoundError:
                    return False
                if bytes(piece) != expected:
                    return False
        return True

    def _find(self, doing: str, request: Callable[[], _T], *, changes: bool = False) -> _T | None:
        """Send a request until an answer comes; None when there is no such object."""
        try:
            return self._ask(doing, request, changes=changes)
        except FileNotFoundError:
            return None

    def _ask(self, doing: str, request: Callable[[], _T], *, changes: bool = False) -> _T:
        """Send a request until an answer comes."""
        # Patience is for the whole request, not for each try.
        give_up_at = time.monotonic() + self._patience_s
        pause, in_doubt = PAUSE_S, False
        while True:
            # The client that is asked now: another thread may exchange it while the request is under way.
            asked = self._raw
            problem: Exception
            try:
                return request()
            except _REFUSED as error:
                try:
                    if self._has_other_credentials(asked):
                        continue
                except ProviderAway as away:
                    problem = away
                else:
                    # An earlier try may have been done, whatever this one was told.
                    kind: type[StoreError | NotAuthorized] = StoreInDoubt if in_doubt else NotAuthorized
                    raise kind(f"{self.name} refuses to {doing}: {_first_line(error)}") from error
            except (InvalidPathError, NotSupportedError, NotImplementedError) as error:
                raise StoreError(f"{self.name} can't {doing}: {_first_line(error)}") from error
            except BaseError as error:
                if self._folder is not None and _NO_ROOM in str(error):
                    raise StoreError(f"no room to {doing} in {self.name}; make room on that disk") from error
                problem, in_doubt = error, changes
            if time.monotonic() + pause > give_up_at:
                failed = StoreInDoubt if in_doubt else StoreError
                raise failed(
                    f"{self.name} did not answer in {self._patience_s:.0f} s when asked to {doing}: {_first_line(problem)}"
                ) from problem
            self._wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the tries of many
            pause = min(2 * pause, PAUSE_S_MAX)

    def _has_other_credentials(self, refused: RawStore) -> bool:
        """Look for other credentials than those of a client, and use them; True also when another request has found some."""
        with self._renewing:
            # Another thread has renewed them already: its client is tried before the file is read again.
            if self._raw is not refused:
                return True
            clients = self._renew()
            if clients is None:
                return False
            # `_raw` comes last: a request that finds it exchanged finds both clients exchanged.
            raw, self._pieces = clients
            self._raw = raw
            return True


@contextmanager
def _in_doubt(what: str) -> Iterator[None]:
    """Turn what a disk refuses into doubt about what was done."""
    try:
        yield
    except OSError as error:
        raise StoreInDoubt(f"{what}: {os.strerror(error.errno or 0)}") from error


def _check_key(key: str) -> None:
    if _KEY.fullmatch(key) is None or any(word in (".", "..") for word in key.split("/")):
        raise BadInput(f"{key!r} is no key of an object: words of A-Z a-z 0-9 . _ = ~ + - with slashes in between")


def _first_line(error: Exception) -> str:
    """Return what a client says, without its inner state."""
    return str(error).partition("\n")[0]


__all__ = ["ObjectChanged", "ObjectExists", "ObjectInfo", "ObjectStore", "StoreInDoubt", "TaggedObject"]
