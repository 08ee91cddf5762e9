"""A target with every kind of defect, by which the fuzzer is tested."""

from __future__ import annotations

import os
import signal

from replitree.errors import BadInput
from tests.fuzz.target import Target, reads

_CPU_S_MAX = 0.2
_BYTES_MAX = 16 << 20
"""Small, so that touching twice as much takes far less CPU than `_CPU_S_MAX`, also on a machine with a high load."""

NAME = "self-test"


def _read(data: bytes) -> None:
    match data:
        case b"raises":
            raise ValueError("broken")
        case b"crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"spins":
            while True:
                pass
        case b"grows":
            bytes(b"x" * (2 * _BYTES_MAX))
        case b"demands":
            bytearray(100 * _BYTES_MAX)
        case b"good":
            return
    raise BadInput("refused")


TARGETS = (Target(NAME, reads(_read), (BadInput,), cpu_s_max=_CPU_S_MAX, bytes_max=_BYTES_MAX),)
