"""Parts that were taken out of a table and are kept for an operator, and those of them that can be attached again.

::

    detached/detached_<part>_<n>/…     made way for another part of the name that is kept; can be attached again
    detached/<part>/…                  kept when the table dropped it, or put here by a person; can be attached again
    detached/removed_<part>_<n>/…      the table no longer had it
    detached/broken_<part>_<n>/…       its files were not what they should be; ``reason.txt`` says why

`<n>` tells folders of one part from each other, from 0 on.  The name says everything: nothing is written into a folder that is
taken out, so its files stay those of its manifest.

Absent on purpose: deletion by itself (a detached part is deleted when an operator says so), and the question whether rows
still fit the table: the replica that attaches a part asks the definition.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from replitree.storage.parts.manifest import PartManifest
from replitree.storage.parts.part_folder import FOLDER_NAME, PART_NAME, folders, whole_manifest

DETACHED = "detached"
REMOVED = "removed"
BROKEN = "broken"
REASONS = frozenset({DETACHED, REMOVED, BROKEN})
"""Words that the name of a detached folder may begin with."""

_NAME = re.compile(rf"({'|'.join(sorted(REASONS))})_({PART_NAME.pattern})_([0-9]+)")


@dataclass(frozen=True, slots=True)
class DetachedFolder:
    """A whole part outside of the table.

    Attributes
    ----------
    name
        Of its folder; what `stage_detached` and `remove_detached` take.
    part
        The name that it had as a part.
    manifest
        What it holds.
    """

    name: str
    part: str
    manifest: PartManifest

    @property
    def rows(self) -> int:
        """Rows in it."""
        return self.manifest.rows

    @property
    def bytes(self) -> int:
        """Bytes of its data files."""
        return self.manifest.bytes


def attachable_parts(detached: Path) -> Iterator[DetachedFolder]:
    """Give the parts in the folder that can be attached, in the order of their names: whole, and not taken out as wrong."""
    for name in folders(detached, FOLDER_NAME):
        why, part = detached_name(name)
        if why != DETACHED or not part:
            continue
        manifest = whole_manifest(detached / name)
        if manifest is not None:
            yield DetachedFolder(name, part, manifest)


def detached_name(name: str) -> tuple[str, str]:
    """Tell why a folder was taken out, and as which part; both are empty when its name says neither.

    Examples
    --------
    >>> detached_name("broken_all_3_7_1_0")
    ('broken', 'all_3_7_1')
    >>> detached_name("all_3_7_1")
    ('detached', 'all_3_7_1')
    """
    found = _NAME.fullmatch(name)
    if found is not None:
        return found[1], found[2]
    return (DETACHED, name) if PART_NAME.fullmatch(name) else ("", "")


def free_name(folder: Path, stem: str) -> Path:
    """Give the first of ``<stem>_0``, ``<stem>_1``, … that nothing in the folder is called."""
    number = 0
    # `lexists`: a link that leads nowhere takes the name as well.
    while os.path.lexists(target := folder / f"{stem}_{number}"):
        number += 1
    return target
