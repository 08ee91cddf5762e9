"""``python -m tests.replica.shard_server --config FILE``: a replica that also hosts tables with the name of a shard."""

from __future__ import annotations

import re
import sys

from replitree.protocol.core import layout

SHARD_OR_TABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(~[0-9]+)?")

if __name__ == "__main__":
    setattr(layout, "_NAME", SHARD_OR_TABLE)  # noqa: B010 - no command creates sharded tables yet
    from replitree.replica.server import main

    sys.exit(main(sys.argv[2]))
