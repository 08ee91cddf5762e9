"""The models: which worlds are explored.

Each file is one theme; `MODELS` has them all by name.

Imports: `world`.

Changes: a changed count without a changed protocol is a finding; `pins.jsonl` has the counts.
"""

from __future__ import annotations

from replitree_verify.models import (
    clean,
    combined,
    drop,
    ids,
    insert,
    leave,
    lost,
    lost_results,
    merge,
    moved,
    mutate,
    quorum,
    read,
    recover,
    rejoined,
    restart,
    restore,
    roll,
    stored,
    stored_merges,
)
from replitree_verify.world.model import Model

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        *insert.MODELS,
        *quorum.MODELS,
        *insert.PULLED,
        *restart.MODELS,
        *combined.MODELS,
        *merge.MODELS,
        *mutate.MODELS,
        *mutate.REWRITES,
        *drop.MODELS,
        *clean.MODELS,
        *recover.MODELS,
        *leave.MODELS,
        *lost.MODELS,
        *lost_results.MODELS,
        *ids.MODELS,
        *roll.MODELS,
        *restore.MODELS,
        *read.MODELS,
        *read.TAGS,
        *read.CONSUMERS,
        *stored.MODELS,
        *stored_merges.MODELS,
        *rejoined.MODELS,
        *moved.MODELS,
        *ids.STREAMS,
    )
}
"""Every model by its name, in the order in which they are listed."""
