"""A gateway: the objects of a store as files that Spark's JVM can open, where it has no client for the store.

Every Spark has Hadoop's client for WebHDFS, and through it the JVM's own Parquet reader, which reads only the columns
and row groups that a query needs.  The gateway is a small server of that protocol in the driver's process
(`replitree.spark.store.webhdfs`).  What it sends it reads from the store, block by block.  A replica has a part in it only
when an object is damaged.

Guarantees:

* It listens on 127.0.0.1 only, and has only the files that were published here.
* A client must send a header whose *name* is this process's secret: all that the client can be told to add to a
  request.  It is among the options of the reader, and neither in URLs nor in plans or logs.
* Every byte that is sent was compared with a checksum.  A damaged object is replaced by a good copy, where one is to be had.
* A file that is not in the store (any more) is an error, never an empty or a short one.

Absent on purpose: executors on other machines.  They read through ``format("replitree")``.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

import xxhash

from replitree.errors import StoreError
from replitree.spark.store.blocks import Blocks, ServedObject
from replitree.spark.store.webhdfs import FileServer
from replitree.storage.parts.verified import StoredFile

FILES_MAX = 1_000_000
"""Files that are remembered; the folder that was published longest ago is forgotten first."""

_OPTIONS = "dfs.webhdfs.rest-csrf"


class Gateway:
    """Serves objects to the JVM of this machine.  Any thread may use it."""

    def __init__(self) -> None:
        self._secret = f"X-Replitree-{secrets.token_hex(32)}"
        self._folders: OrderedDict[str, dict[str, ServedObject]] = OrderedDict()
        self._lock = threading.Lock()
        self._blocks = Blocks()
        self._server = FileServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="replitree-gateway", daemon=True)
        self._thread.start()

    @property
    def options(self) -> dict[str, str]:
        """Options of a Spark reader that may read here.  They hold the secret."""
        return {
            f"{_OPTIONS}.enabled": "true",
            f"{_OPTIONS}.custom-header": self._secret,
            f"{_OPTIONS}.methods-to-ignore": "OPTIONS",
        }

    def publish(self, root: str, files: Mapping[str, StoredFile]) -> str:
        """Let data files of parts in a store be read; return the URL of a folder that has these files and no others.

        Parameters
        ----------
        root
            What the keys of all objects of the table begin with.
        files
            The files, by the names that the folder is to have.
        """
        # A folder of all files, because Spark asks for each path that it is given, one after the other.  It is named by what it
        # has: frames that read the same files share it.
        digest = xxhash.xxh3_128_hexdigest("\n".join(files).encode())
        path = f"/{root}/{digest}"
        with self._lock:
            self._folders[path] = {name: ServedObject(file) for name, file in files.items()}
            self._folders.move_to_end(path)
            while len(self._folders) > 1 and sum(map(len, self._folders.values())) > FILES_MAX:
                self._folders.popitem(last=False)
        return f"webhdfs://{self._server.authority}{path}"

    def forget(self) -> None:
        """Keep nothing of what was read: the next reader asks the store again."""
        self._blocks.forget()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._blocks.close()

    # --- what the server asks ---

    def lets_in(self, headers: Iterable[str]) -> bool:
        """See `replitree.spark.store.webhdfs.Files`."""
        # Names of headers have no case; compared in constant time, so that a client can't guess the secret by and by.
        secret = self._secret.lower().encode()
        return any(hmac.compare_digest(name.lower().encode(), secret) for name in headers)

    def size(self, path: str) -> int | None:
        """See `replitree.spark.store.webhdfs.Files`."""
        found = self._file(path)
        return None if found is None else found.size

    def sizes(self, path: str) -> Mapping[str, int] | None:
        """See `replitree.spark.store.webhdfs.Files`."""
        found = self._folders.get(path.rstrip("/"))
        return None if found is None else {name: file.size for name, file in found.items()}

    def stream(self, path: str, first: int) -> Iterator[memoryview]:
        """See `replitree.spark.store.webhdfs.Files`."""
        found = self._file(path)
        if found is None:
            raise StoreError(f"{path} is not served here any more; make the frame again")
        return self._blocks.stream(found, first)

    def _file(self, path: str) -> ServedObject | None:
        folder, _, name = path.rpartition("/")
        return self._folders.get(folder, {}).get(name)


_guard = threading.Lock()
_running: dict[int, Gateway] = {}


def this_gateway() -> Gateway:
    """Return this process's gateway; it is started when it is asked for first, and lasts as long as the process."""
    with _guard:
        # By process: one that was forked has no thread that serves.
        process = os.getpid()
        if process not in _running:
            _running[process] = Gateway()
        return _running[process]


__all__ = ["Gateway", "this_gateway"]
