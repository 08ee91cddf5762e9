"""The reckoning of a run, when every client has its answers and nothing is hurt any more.

* Every acknowledged row is on every replica exactly once, unless it was deleted; of an attempt that is still open all rows are
  there, or none; no other row is there; every acknowledged update was done, and none more often than it was asked for.
* All replicas have the same parts with the same content: those of the fold of the log.
* Queues are empty, no part is lacking, nothing is left in staging, every process serves; a log that is cleaned is short.
* No replica has written a traceback: a defect that mended itself is a defect.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from replitree.client.read.snapshot import Snapshot
from replitree.client.table import Table
from replitree.errors import ReplitreeError, Unavailable
from replitree.protocol.core.fold import fold
from tests.faults.cluster import FaultCluster
from tests.faults.scribe import Scribe
from tests.faults.workload import Account
from tests.waiting import wait_for

SETTLE_S = 120.0
LOG_KEPT_SETTING = "min_replicated_logs_to_keep"
LOG_KEPT_MORE = 10
"""So many entries more than it is to keep a log that is cleaned may have: cleaning goes by batches."""


def reckon(table: Table, names: tuple[str, ...], account: Account) -> int:
    """Check what every replica shows against what the clients were told; return the number of parts."""
    snapshots = wait_until_equal(table, names)
    expected = {row for ids in account.acknowledged.values() for row in ids}
    known = expected.union(*account.open.values())
    for name in names:
        read = table.replica(name).to_arrow(columns=["id", "n"])
        ids = Counter(read["id"].to_pylist())
        twice = [row for row, count in ids.items() if count > 1]
        assert not twice, f"{name} has rows twice: {twice[:5]}"
        missing = sorted(expected.difference(ids))
        assert not missing, f"{name} lacks {len(missing)} acknowledged rows: {missing[:5]}"
        strangers = sorted(set(ids).difference(known))
        assert not strangers, (
            f"{name} has {len(strangers)} rows that nobody inserted, or that are gone: {strangers[:5]}"
        )
        for token, attempt in account.open.items():
            present = sum(row in ids for row in attempt)
            assert present in (0, len(attempt)), f"{name} has {present} of {len(attempt)} rows of {token}"
        check_updates(name, dict(zip(read["id"].to_pylist(), read["n"].to_pylist(), strict=True)), account)
    return len(snapshots[names[0]].parts)


def check_updates(name: str, n: dict[int, int], account: Account) -> None:
    """Check how often each attempt's rows were updated."""
    for token, ids in account.acknowledged.items():
        found = {n[row] for row in ids}
        least, most = account.added[token], account.perhaps_added[token]
        assert len(found) == 1, f"{name}: rows of {token} were updated differently: {sorted(found)}"
        assert least <= min(found) <= most, f"{name}: {token} was updated {found} times, not {least} to {most} times"


def wait_until_equal(table: Table, names: Sequence[str]) -> dict[str, Snapshot]:
    """Wait until every replica shows the same parts at the same index, up to the log's tail."""
    deadline, least = time.monotonic() + SETTLE_S, None
    why = "nothing was asked yet"
    while time.monotonic() < deadline:
        try:
            status = table.status()
            tail, left = status.log_tail, sum(replica.lag or 0 for replica in status.replicas)
            if least is None or left < least:  # slow is not stuck
                deadline, least = time.monotonic() + SETTLE_S, left
            snapshots = {name: table.replica(name).snapshot(min_index=tail - 1, timeout_s=10.0) for name in names}
        except ReplitreeError as error:
            why = str(error)
            threading.Event().wait(0.2)
            continue
        contents = {name: content(snapshot) for name, snapshot in snapshots.items()}
        if len({frozenset(parts.items()) for parts in contents.values()}) == 1:
            return snapshots
        why = f"different parts: {_differences(contents)}"
        threading.Event().wait(0.2)
    raise AssertionError(f"the replicas are not equal, and for {SETTLE_S:g} s nothing moved: {why}; {table.status()}")


def content(snapshot: Snapshot) -> dict[str, str]:
    """Return the content hash of every part of a snapshot."""
    return {part.part: part.manifest.content for part in snapshot.parts}


def _differences(contents: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    common = set.intersection(*(set(parts.items()) for parts in contents.values()))
    return {name: sorted(part for part, _ in set(parts.items()) - common)[:10] for name, parts in contents.items()}


def check_fold(table: Table, names: Sequence[str], scribe: Scribe) -> bool:
    """Every replica shows the parts that the log says.  False: the log was cleaned before it could be read."""
    scribe.catch_up()
    if scribe.missed is not None:
        return False

    def is_the_fold() -> bool:
        scribe.catch_up()
        expected = {part.name for part in fold(scribe.log)}
        try:
            shown = [table.replica(name).snapshot(min_index=scribe.next - 1) for name in names]
        except Unavailable:
            return False  # it is behind on a busy machine; one that stays behind ends the wait
        return all(set(content(each)) == expected for each in shown)

    wait_for(is_the_fold, "every replica shows the fold of the log", SETTLE_S)
    return True


def check_health(cluster: FaultCluster, table: Table, names: Sequence[str] = ()) -> None:
    """Every server serves and every replica has nothing left to do; of a shard: those of these names."""
    wait_for(
        lambda: not ailments(cluster, table, names),
        lambda: f"every replica is well: {ailments(cluster, table, names)}",
        SETTLE_S,
    )


def ailments(cluster: FaultCluster, table: Table, names: Sequence[str] = ()) -> list[str]:
    """Return what is not as it should be when nothing happens, one line for each replica and complaint."""
    found: list[str] = []
    for name in names or cluster.names:
        for route in ("/health", f"/v1/tables/{table.name}/status"):
            status, answer = ask(cluster, cluster.address(name), "GET", route)
            if status != http.client.OK:
                found.append(f"{name} {route}: {status} {answer}")
            found += [f"{name}: {key} = {answer[key]}" for key in ("queue", "lacking", "postponed") if answer.get(key)]
    return found


def check_log(cluster: FaultCluster, scribe: Scribe) -> None:
    """The log is short, if this cluster's replicas clean it soon."""
    keep = cluster.settings.get(LOG_KEPT_SETTING)
    if isinstance(keep, int):
        most = keep + LOG_KEPT_MORE
        wait_for(
            lambda: scribe.kept() <= most, lambda: f"the log has at most {most} entries, not {scribe.kept()}", SETTLE_S
        )


def check_staging(cluster: FaultCluster) -> None:
    """Nothing is left in staging, after every replica was started afresh."""
    wait_for(lambda: not staging(cluster), lambda: f"nothing is left in staging: {staging(cluster)}", SETTLE_S)


def staging(cluster: FaultCluster) -> list[Path]:
    """Return what lies in staging: after a restart nothing, but for merges on their way."""
    return sorted(cluster.folder.glob("*/data/tables/*/staging/*"))


def check_logs(cluster: FaultCluster) -> None:
    """No replica has come upon a defect of ours."""
    for name in cluster.names:
        lines = cluster.process(name).log.read_text("utf-8", "replace").splitlines()
        defects = [line for line in lines if "raceback" in line]
        assert not defects, f"{name} came upon {len(defects)} defects; the first: {defects[0][:3000]}"


def write_down(cluster: FaultCluster, table: Table) -> None:
    """Write what every replica says of itself into the folder, for whoever reads a failure."""
    for name in cluster.names:
        try:
            _, answer = ask(cluster, cluster.address(name), "GET", f"/v1/tables/{table.name}/status")
        except OSError as error:
            answer = {"error": str(error)}
        (cluster.folder / f"status-{name}.json").write_text(json.dumps(answer, indent=1), encoding="utf-8")


def check_part(cluster: FaultCluster, table: Table, name: str, part: str) -> None:
    """Have a replica look at a part that is suspected to be broken; it may be gone, or the replica too."""
    with suppress(OSError):
        ask(cluster, cluster.address(name), "POST", f"/v1/tables/{table.name}/parts/{part}/check", 2.0)


def ask(
    cluster: FaultCluster, address: str, method: str, path: str, timeout_s: float = 10.0
) -> tuple[int, dict[str, Any]]:
    """Send a request to a replica; return status and answer."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        token = cluster.connection.access.token
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        found = {}
    return answer.status, found if isinstance(found, dict) else {}
