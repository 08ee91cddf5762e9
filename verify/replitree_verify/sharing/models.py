"""The scenarios: fsck, and replicas that have lost their disks, while what goes wrong."""

from __future__ import annotations

from replitree_verify.sharing.models_fsck import FSCK_MODELS
from replitree_verify.sharing.models_own import OWN_MODELS
from replitree_verify.sharing.world import Model

MODELS = (*FSCK_MODELS, *OWN_MODELS)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "find_model"]
