"""Connections that a Python process of Spark keeps from one job to the next.

Spark plans and commits each batch of a stream in two Python processes, which it keeps while batches come.  To begin a session
with coordination and to end it are two commits of ZooKeeper's, and a batch would wait for four of them.

Guarantees: each job gets a connection of its own, however many run at once; one with which a job has failed is not used again.
The addresses and the token are read anew for each job.

A kept connection ends with its process: Spark kills one that has had nothing to do for a minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.spark.session.options import open_connection

KEPT_MAX = 4
"""Connections that one process keeps."""

_kept: dict[Access, Connection] = {}
_lock = Lock()
# A fork has copies of its parent's sockets, and none of the threads that read them.
os.register_at_fork(after_in_child=_kept.clear)


@contextmanager
def kept_connection(options: Mapping[str, str]) -> Iterator[Connection]:
    """Give a connection to the cluster that options or environment name: one that is kept, or a new one, which is kept then.

    Raises
    ------
    BadInput
        Neither names one.
    """
    # It opens no session before its first question.
    connection = open_connection(options)
    access = connection.access
    with _lock:
        connection = _kept.pop(access, connection)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    with _lock:
        # A job that ran meanwhile has left its own.
        surplus = [_kept.pop(access)] if access in _kept else []
        _kept[access] = connection
        while len(_kept) > KEPT_MAX:
            surplus.append(_kept.pop(next(iter(_kept))))
    for each in surplus:
        each.close()


__all__ = ["KEPT_MAX", "kept_connection"]
