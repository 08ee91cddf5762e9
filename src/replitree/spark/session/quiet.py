"""Starting Java without its greetings: what it says on standard error while it starts goes to a file, not to the screen."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

DEBUG_VARIABLE = "REPLITREE_DEBUG"
"""Set in the environment, it leaves everything on the screen."""

LAST_BYTES = 2000


@contextmanager
def quiet_children() -> Iterator[None]:
    """Let child processes that are started meanwhile, and stay, write their standard error to a hidden file.

    When the block fails, the last of it is shown after all: it says why.
    """
    if os.environ.get(DEBUG_VARIABLE):
        yield
        return
    # What Python has not written yet was said before, and belongs on the screen.
    sys.stderr.flush()
    with tempfile.TemporaryFile() as hidden:
        screen = os.dup(2)
        try:
            # The descriptor, not `sys.stderr`: it is what a child inherits, and keeps.
            os.dup2(hidden.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(screen, 2)
                os.close(screen)
        except Exception:
            hidden.seek(max(0, hidden.seek(0, os.SEEK_END) - LAST_BYTES))
            sys.stderr.write(hidden.read().decode(errors="replace"))
            raise
