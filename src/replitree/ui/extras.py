"""What the page shows beside the cluster: tablets and a trace of the checker, which the operator names at its start.

Guarantees: a browser can't name a file or an address.  A trace is read anew at each request, so the page shows what a later run
of the checker has written; of a file above `TRACE_BYTES_MAX` nothing is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replitree.errors import BadInput

TRACE_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class Extras:
    """What `replitree ui` was told to show, too.

    Attributes
    ----------
    tablets
        Addresses of candidates and folders of blob groups.
    trace
        A file that `replitree verify` has written; None: none.
    """

    tablets: tuple[str, ...] = ()
    trace: Path | None = None


def read_trace(file: Path | None) -> dict[str, Any]:
    """Return the name and the text of a trace; both are empty without one.

    Raises
    ------
    BadInput
        The file can't be read, is too large, or is no text.
    """
    if file is None:
        return {"name": "", "text": ""}
    try:
        if (size := file.stat().st_size) > TRACE_BYTES_MAX:
            raise BadInput(f"{file} has {size:,} bytes; the page shows traces up to {TRACE_BYTES_MAX:,}")
        return {"name": file.name, "text": file.read_text(encoding="utf-8")}
    except OSError as error:
        raise BadInput(f"can't read the trace {file} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is no text: `replitree verify explore MODEL --json` writes a trace") from error
