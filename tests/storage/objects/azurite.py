"""A real emulator of Azure Blob Storage on this machine: Azurite, the npm package of Azure's makers, in one process.

It is no package of Python: `make azurite` puts it and 373 packages below it into a folder, which `FOLDER_VARIABLE` names;
`make nightly` does so first, where there is npm.  It runs on Node.js 10 and newer; later versions want 22.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from replitree.coordination.embedded import free_ports
from replitree.coordination.supervise import Supervised
from tests.coordination.waiting import eventually

CONTAINER = "lake"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has, and its key, which its documentation names."""

FOLDER_VARIABLE = "AZURITE_FOLDER"
PATIENCE_S = 60.0


def why_not() -> str:
    """Return why it can't be started here; empty: it can."""
    if shutil.which("node") is None:
        return "there is no Node.js"
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return f"{FOLDER_VARIABLE} names no folder with Azurite"
    return "" if _program(Path(folder)).is_file() else f"{folder} has no Azurite"


def _program(folder: Path) -> Path:
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


class Azurite:
    """The server with one container.

    Parameters
    ----------
    folder
        For its log; must exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self.port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._server: Supervised | None = None

    def url(self, prefix: str) -> str:
        """Return the URL of a place in the container."""
        return f"az://{CONTAINER}/{prefix}?account={ACCOUNT}&endpoint={self.endpoint}"

    def __enter__(self) -> Self:
        command = [str(shutil.which("node")), str(_program(Path(os.environ[FOLDER_VARIABLE])))]
        command += ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--inMemoryPersistence", "--silent"]
        # Its version of the protocol may be older than the client's.
        command += ["--skipApiVersionCheck", "--disableTelemetry"]
        self._server = Supervised(command, self._folder / "azurite.log")
        eventually(self._has_container, "Azurite makes a container", PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait(10.0)

    def _has_container(self) -> bool:
        """Make the container; tell whether that worked."""
        assert self._server is not None
        assert self._server.poll() is None, (self._folder / "azurite.log").read_text()[-3000:]
        moment = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": moment, "x-ms-version": "2023-11-03"}
        named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        # Shared Key: the method, eleven headers that are empty here, those of Azure, the resource.
        signed = "PUT" + 12 * "\n" + f"{named}/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
        request = urllib.request.Request(
            f"{self.endpoint}/{ACCOUNT}/{CONTAINER}?restype=container", method="PUT", headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return int(answer.status) == 201
        except OSError:
            return False
