"""A replica with one table that starts in a process of its own, and says what was loaded by then: one line of JSON.

``python -m tests.replica.lean_start FOLDER METADATA COLUMNS``, with the values of the table's two nodes.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
from pathlib import Path

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import make_root
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.membership.table import create_table
from replitree.replica.http.http_server import HttpServer
from replitree.replica.kit.config import Address, ServerConfig
from replitree.replica.perform.availability import State
from replitree.replica.perform.runner import Performer
from replitree.replica.server import Server
from tests.waiting import wait_for

HEAVY = ("aiohttp", "numpy", "pyarrow", "pyspark", "rich", "sqlglot", "typer")
ROOT, TOKEN = "/replitree", "0123456789abcdef"


def loaded() -> list[str]:
    return [name for name in HEAVY if name in sys.modules]


def ask(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def make_server(folder: Path, metadata: bytes, columns: bytes) -> Server:
    """A server beside a coordination that has a table `t`."""
    tree = SharedTree()
    session = MemoryCoordination(tree)
    make_root(session, layout.tables(ROOT))
    performer = Performer(lambda: session, lambda _: None, lambda *_: None)
    performer.run(create_table(TablePlace(layout.table_path(ROOT, "t")), metadata, columns))
    config = ServerConfig("r1", "zk://unused", str(folder), "unused")
    return Server(config, TOKEN, Address("127.0.0.1", 1), MemoryCoordination(tree), ROOT)


async def main(folder: Path, metadata: bytes, columns: bytes) -> None:
    server = make_server(folder, metadata, columns)
    web = HttpServer(server, TOKEN, ServerConfig("r1", "zk://unused", str(folder), "unused"))
    port = await web.listen("127.0.0.1", 0)
    await asyncio.to_thread(server.start)
    table = server.table("t")
    await asyncio.to_thread(wait_for, lambda: table.availability.state is State.ACTIVE, "active")
    said: dict[str, object] = {
        "state": table.availability.state.value,
        "snapshot": await asyncio.to_thread(ask, port, "/v1/tables/t/snapshot"),
        "at_start": loaded(),
        "health": await asyncio.to_thread(ask, port, "/health"),
        "after_health": loaded(),
        "status": await asyncio.to_thread(ask, port, "/v1/status"),
        "after_status": loaded(),
    }
    await asyncio.to_thread(server.load_the_rest)
    said["after_the_rest"] = loaded()
    said["failure"] = None if server.failure is None else str(server.failure)
    print(json.dumps(said), flush=True)  # noqa: T201 - for the test
    await asyncio.to_thread(server.stop, 5.0)
    await web.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2].encode(), sys.argv[3].encode()))
