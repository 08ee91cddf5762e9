"""A client that changes where the table's rows lie, so that parts move into the store and out of it while all else goes on."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from replitree.client.table import Table
from replitree.errors import ReplitreeError
from tests.faults import checks
from tests.faults.changer import CHANGE_S, Changer
from tests.faults.cluster import FaultCluster
from tests.faults.workload import Account
from tests.waiting import wait_for

NUMBER = 30
"""Of the first of them, among clients that change."""

TO_STORE, TO_DISK = "moved_to_store", "moved_to_disk"
"""What replicas call the parts that they have moved."""

HOLD_S = (2.0, 6.0)
"""How long a storage policy is left as it is, in seconds."""

LOOK_S = 0.5
ASK_S = 2.0


class Switcher(Changer):
    """Switches between the store, tiers, and local disks; half of the time new rows go into the store."""

    def __init__(self, cluster: FaultCluster, url: str, table: Table, account: Account, seed: int) -> None:
        super().__init__(NUMBER, table, cluster.names, account, seed)
        self.name = "switcher"
        self._cluster = cluster
        self._policies = (url, url, f"tiered({url}, older=1s)", "local")
        self._deck: list[str] = []
        self._seen: dict[tuple[str, str], int] = {}

    @override
    def _act(self) -> None:
        if not self._deck:  # each comes round soon
            self._deck = self._random.sample(self._policies, len(self._policies))
        policy = self._deck.pop()
        what = f"storage {policy.partition('(')[0].partition(':')[0]}"
        self._do(what, lambda at, known_as: at.set_storage(policy, command_id=known_as, timeout_s=CHANGE_S))
        for _ in range(int(self._random.uniform(*HOLD_S) / LOOK_S)):
            self._look()
            if self._stop.wait(LOOK_S):
                return

    def _look(self) -> None:
        """Count what was moved: at least so much, since what a killed process did last is not told any more."""
        for name in self._names:
            moving = moves_of(self._cluster, self._table, name)
            for way in (TO_STORE, TO_DISK):
                now, before = moving.get(way), self._seen.get((name, way), 0)
                if now is None:
                    continue
                for _ in range(now - before if now >= before else now):
                    self._account.count(way)
                self._seen[name, way] = now


def moves_of(cluster: FaultCluster, table: Table, name: str) -> dict[str, Any]:
    """Return what a replica says of its moves; nothing when it does not answer, or the table has no store."""
    try:
        _, answer = checks.ask(cluster, cluster.address(name), "GET", f"/v1/tables/{table.name}/status", ASK_S)
    except OSError:
        return {}
    moving: dict[str, Any] | None = answer.get("moving")
    return moving or {}


def bring_all_into_the_store(cluster: FaultCluster, table: Table, url: str) -> None:
    """Switch to the store, and wait until every part of every replica lies there; what is queued is done first."""

    def is_set() -> bool:
        try:
            table.set_storage(url, timeout_s=CHANGE_S)
        except ReplitreeError:
            return False
        return True

    def lie_elsewhere() -> list[str]:
        try:
            found = {name: table.replica(name).snapshot().parts for name in cluster.names}
        except ReplitreeError as error:
            return [str(error)]
        return [f"{name}: {part.part}" for name, parts in found.items() for part in parts if not part.manifest.share_id]

    wait_for(is_set, "the table's rows belong into the store", checks.SETTLE_S)
    checks.wait_until_equal(table, cluster.names)  # however long that takes, as long as queues get shorter
    wait_for(lambda: not lie_elsewhere(), lambda: f"all rows are in the store: {lie_elsewhere()[:5]}", checks.SETTLE_S)


__all__ = ["TO_DISK", "TO_STORE", "Switcher", "bring_all_into_the_store"]
