"""Simulated sharded tables tear, lose and double nothing, and the same seed is the same run."""

from __future__ import annotations

import pytest

from replitree.errors import BadInput
from replitree_verify.simulation.sharded.sharded_run import ShardedSimulation, draw_sharded
from replitree_verify.small_models import simulate_sharded
