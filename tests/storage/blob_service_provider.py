"""Members in directories behind blob services, each with a client of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from replitree.replica.blob_service import BlobService
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.remote import RemoteMember
from replitree.tls import SECURE, Contexts
from tests.storage.blob_providers import InDirectories

T = TypeVar("T")

TOKEN = "shared-secret"
PATIENCE_S = 30.0


class Services:
    """Blob services of this process, on a loop of their own; with `tls` none is in clear text."""

    def __init__(self, tls: Contexts | None = None) -> None:
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="blob-services")
        self._thread.start()
        self._services: list[BlobService] = []

    def start(self, member: BlobMember, port: int = 0) -> str:
        """Serve a member; return the address."""
        self._services.append(BlobService(member, TOKEN, self._tls))
        return f"{SECURE if self._tls else ''}127.0.0.1:{self._do(self._services[-1].listen('127.0.0.1', port))}"

    def close(self) -> None:
        for service in self._services:
            self._do(service.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


class BehindServices(InDirectories):
    """Members in directories, each behind a service; a member that is opened is a new service and a new client."""

    def __init__(self, root: Path, patch: Callable[[str, object], None]) -> None:
        super().__init__(root, patch)
        self._services = Services()
        self._clients: list[RemoteMember] = []

    @override
    def member(self, number: int) -> BlobMember:
        self._clients.append(RemoteMember(self._services.start(super().member(number)), TOKEN, PATIENCE_S))
        return self._clients[-1]

    @override
    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._services.close()
