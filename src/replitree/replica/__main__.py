"""``python -m replitree.replica --config FILE``: the server of one replica, as `replitree up` starts it."""

from __future__ import annotations

import gc
import sys

gc.disable()  # what is loaded stays, so looking for garbage in it is a tenth of the loading; the server enables it again

from replitree.replica.server import main  # noqa: E402

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "--config":
        sys.exit("usage: python -m replitree.replica --config FILE")
    sys.exit(main(sys.argv[2]))
