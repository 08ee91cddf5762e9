"""The process of `replitree blobd`: makes the directory if it is told to, serves it, and says where on standard output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from pathlib import Path

from replitree import private
from replitree.errors import StoreError
from replitree.replica.blob_service import BlobService
from replitree.tablet.group.member import Failed
from replitree.tablet.members.directory import BlobDirectory, make_blob_directory
from replitree.tls import SECURE, Contexts


def run(
    folder: Path, token: str, address: tuple[str, int], made: tuple[str, int] | None = None, tls: Contexts | None = None
) -> int:
    """Serve a directory until SIGTERM or SIGINT; return the exit status.

    Parameters
    ----------
    folder
        The member's directory.
    token
        The shared secret.
    address
        Host and port to listen at; port 0: any.
    made
        Make the directory first, as which member of which group; None: it is there.
    tls
        With which every connection begins; None: all are in clear text.

    Raises
    ------
    StoreError
        The directory can't be made, or is no member's.
    BadInput
        The address can't be listened on.
    """
    os.umask(private.PRIVATE_UMASK)
    if made is not None:
        make_blob_directory(folder, *made, str(uuid.uuid4()))
    directory = BlobDirectory(folder)
    standing = directory.standing()
    if isinstance(standing, Failed):
        raise StoreError(f"{folder} can't be served: {standing.reason}; --make GROUP makes a new one")
    asyncio.run(_serve(BlobService(directory, token, tls), address, standing.incarnation, is_secure=tls is not None))
    return 0


async def _serve(service: BlobService, address: tuple[str, int], incarnation: str, *, is_secure: bool) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    port = await service.listen(*address)
    said = {"listening": f"{SECURE if is_secure else ''}{address[0]}:{port}", "incarnation": incarnation}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    await ended.wait()
    await service.close()
