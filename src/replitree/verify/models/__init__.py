"""The models: which worlds are explored.  Each file is one theme; `MODELS` has them all by name."""

from __future__ import annotations

from replitree.verify.model import Model
from replitree.verify.models import combined, insert, pull, replaced, restart

MODELS: dict[str, Model] = {
    model.name: model for model in (*insert.MODELS, *pull.MODELS, *restart.MODELS, *replaced.MODELS, *combined.MODELS)
}
"""Every model by its name, in the order in which they are listed."""

__all__ = ["MODELS"]
