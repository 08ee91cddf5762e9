from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replica.inprocess import InProcessCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas with the table `t`."""
    cluster = InProcessCluster(tmp_path)
    cluster.create_table()
    yield cluster
    cluster.close()
