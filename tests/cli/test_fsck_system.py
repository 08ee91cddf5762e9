"""`replitree fsck` against real processes and a store: what it says, what it repairs, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.storage.objects import open_store
from tests.cli.conftest import Run
from tests.shared.stores import BUCKET, FAULTY, FOLDER, on
from tests.waiting import wait_for

pytestmark = pytest.mark.system

LEFT = "5a" * 16


@on(FOLDER, at_night=(BUCKET, FAULTY))
def test_an_orphan_is_found_and_removed_and_then_nothing_is_wrong(run: Run, tmp_path: Path, store_url: str) -> None:
    with LocalCluster(tmp_path / "data", 2, durable=False) as cluster:
        table = cluster.create_table("t", "k bigint not null", storage=store_url, wait_replicas=2)
        table.insert({"k": [1, 2]})
        at = ("fsck", "t", "--dir", str(cluster.folder))
        wait_for(lambda: run(*at).status == 0, "both own the part", 60.0)
        store, key = open_store(store_url), f"tables/{table.definition.table_id}/{LEFT}/data-0.parquet"
        store.create(key, b"1234")
        young = run(*at)
        assert (young.status, young.err) == (0, "")
        assert young.out.endswith("nothing is wrong\n")
        found = run(*at, "--grace", "0")
        assert found.status == 1
        assert found.out.splitlines()[1:] == [
            f"ORPHAN        share {LEFT} belongs to no replica, and has 1 objects (4 B)",
            "              -> replitree fsck t --repair",
        ]
        repaired = run(*at, "--grace", "0", "--repair", "--json")
        assert (repaired.status, repaired.json["clean"]) == (0, True)
        assert [(each["kind"], each["repair"]) for each in repaired.json["findings"]] == [("orphan", "done")]
        assert store.get(key) is None
        assert run(*at, "--grace", "0").out.endswith("nothing is wrong\n")
        assert table.to_arrow(level="linearizable")["k"].to_pylist() == [1, 2]
