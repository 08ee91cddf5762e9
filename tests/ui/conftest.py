"""A small cluster in this process with one table, and the connection that its page uses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.replica.inprocess import InProcessCluster
from tests.ui.pages import Page, page_of


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    made = InProcessCluster(tmp_path, 2, check_interval_s=0.0)
    made.create_table()
    yield made
    # Playwright has an event loop in this thread, and the cluster wants none.
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(made.close).result()


@pytest.fixture
def page(cluster: InProcessCluster) -> Iterator[Page]:
    with cluster.connect() as connection, page_of(connection) as served:
        yield served
