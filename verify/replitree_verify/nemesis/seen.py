"""The batches that a stream out of a table has seen, in a folder: a file for each time that a batch was shown.

After a driver was killed, the next one shows its last batch again.  It must have the same rows: when all files of a batch are
equal, its rows were seen once; when not, as often as the different files have them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from replitree.decoding import json_decoder
from replitree.wire.history_format import Ranges

_decoder = json_decoder(tuple[tuple[int, int], ...])


class SeenBatches:
    """What a stream has seen.

    Parameters
    ----------
    folder
        Of the files; it is made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def note(self, batch: int, rows: Ranges) -> None:
        """Write down that a batch was shown with rows of these numbers."""
        file = self._folder / f"{batch}-{secrets.token_hex(8)}.json"
        draft = file.with_suffix(".draft")
        # Never half a file: the driver may be killed at any time.
        draft.write_bytes(msgspec.json.encode(rows))
        draft.rename(file)

    def rows(self) -> Sequence[int]:
        """Return the numbers of all rows, each as often as it was seen."""
        batches: dict[str, list[Ranges]] = {}
        for file in sorted(self._folder.glob("*.json")):
            shown = batches.setdefault(file.name.partition("-")[0], [])
            rows = _decoder.decode(file.read_bytes())
            # Shown again as it was: the stream's reader takes the batch once.
            if rows not in shown:
                shown.append(rows)
        return [
            number
            for shown in batches.values()
            for rows in shown
            for first, last in rows
            for number in range(first, last + 1)
        ]


__all__ = ["SeenBatches"]
