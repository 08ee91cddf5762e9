"""``python -m replitree.replica --config FILE``: the server of one replica, as `replitree up` starts it."""

from __future__ import annotations

import gc
import sys

# What is loaded here stays, and looking for garbage in it takes a tenth of the loading.  The server enables it again.
gc.disable()

from replitree.lean import leave_out_pandas  # noqa: E402

leave_out_pandas()

from replitree.replica.server_process import main  # noqa: E402

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "--config":
        sys.exit("usage: python -m replitree.replica --config FILE")
    sys.exit(main(sys.argv[2]))
