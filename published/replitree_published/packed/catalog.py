"""The packed models by name."""

from __future__ import annotations

from replitree_published.packed.model import PackedModel
from replitree_published.packed.models import (
    quorum,
    quorum_mended,
    quorum_partitions,
    quorum_queues,
    quorum_views,
    replication,
    replication_mended,
    replication_queues,
    truncate_log,
    truncate_log_mended,
)

PACKED: dict[str, PackedModel] = {
    model.name: model
    for model in (
        truncate_log.MODEL,
        replication.MODEL,
        quorum.MODEL,
        quorum_views.MODEL,
        truncate_log_mended.MODEL,
        replication_mended.MODEL,
        replication_queues.MODEL,
        quorum_mended.MODEL,
        quorum_mended.LAGGING,
        quorum_partitions.MODEL,
        quorum_queues.MODEL,
    )
}
"""Every packed model, in the order in which they are listed."""
