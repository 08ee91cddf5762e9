"""A store is tried by the servers before a table is created on it.

Guarantees: when a server that would host the table answers that it can not use the store, nothing is created; nor when servers
run and none of them answers.  A server of a version without this check counts as one that can use the store.

Absent on purpose: trying the store from here.  The credentials that count are those of the servers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from replitree.client.transport.catalog import Catalog
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.errors import BadInput, NotAuthorized, ReplicaUnavailable, ReplitreeError, StoreError
from replitree.storage.schema.storage_policy import StorageKind, parse_storage

CHECK_S = 60.0
"""How long a server may take to try a store, in seconds."""

ASKED_AT_ONCE = 16


def check_store(catalog: Catalog, http: HttpClient, table: str, storage: str) -> None:
    """Let every server that would host a table try its object store.

    Parameters
    ----------
    table
        The table that is to be created.
    storage
        Its policy; one without a store needs no check.

    Raises
    ------
    BadInput, NotAuthorized, StoreError
        A server can't use the store; the message names the server.  Nothing was created.
    ReplicaUnavailable
        No server has answered.  Nothing was created.
    """
    policy = parse_storage(storage)
    servers = catalog.servers() if policy.kind is not StorageKind.LOCAL else ()
    if not servers:
        return
    body = msgspec.json.encode({"url": policy.url, "table": table})

    def ask(server: tuple[str, str]) -> ReplitreeError | None:
        name, address = server
        try:
            http.request(address, "POST", "/v1/stores/check", body, timeout_s=CHECK_S).decode(dict[str, Any])
        except (BadInput, NotAuthorized, StoreError) as error:
            return type(error)(f"replica {name} can't use the object store of {table!r}: {error}; nothing was created")
        except (ReplicaUnavailable, AnswerLost) as error:
            # A server that is away does not forbid the table: the servers that answer have tried the store.
            return error
        except ReplitreeError:
            # An older version does not know this request.
            return None
        return None

    with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(servers)), thread_name_prefix="replitree-store") as pool:
        problems = list(pool.map(ask, servers))
    silent = [error for error in problems if isinstance(error, ReplicaUnavailable | AnswerLost)]
    for error in problems:
        if error is not None and error not in silent:
            raise error
    if len(silent) == len(servers):
        raise ReplicaUnavailable(
            f"no replica could say whether it can use the object store of {table!r} ({silent[0]}); nothing was created:"
            " try again"
        )
