"""What to say when an address can't be listened on."""

from __future__ import annotations

import os


def why_not_listening(host: str, port: int, error: OSError) -> str:
    """Return what the operating system refused, and what to do; of a name that can't be resolved, what the resolver says.

    >>> why_not_listening("127.0.0.1", 80, PermissionError(13, "bind: permission denied"))
    "can't listen on 127.0.0.1:80 (Permission denied): name another address, or port 0 for a free one"
    """
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror
    return f"can't listen on {host}:{port} ({reason}): name another address, or port 0 for a free one"


__all__ = ["why_not_listening"]
