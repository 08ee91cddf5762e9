"""The page of `replitree up`: ``python -m replitree.ui SOCKET KEY FOLDER`` (`replitree.cli.cluster.page`).

SOCKET and KEY are file descriptors that were inherited: one listens, from the other the one-time key is read.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

from replitree.client.connection import connect
from replitree.lean import leave_out_pandas
from replitree.ui.process import serve_page

KEY_BYTES_MAX = 1024


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM."""
    leave_out_pandas()
    inherited, pipe, folder = arguments
    key = os.read(int(pipe), KEY_BYTES_MAX).decode()
    os.close(int(pipe))
    with connect(folder) as connection, socket.socket(fileno=int(inherited)) as listening:
        asyncio.run(serve_page(connection, listening, key))


if __name__ == "__main__":
    main(sys.argv[1:])
