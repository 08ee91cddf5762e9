"""The doctor: says in words what is wrong with a cluster, why, and what to do.

A pure function from what is known (`doctor_state`) to findings, worst first; `doctor_gather` asks coordination and the
replicas.  It changes nothing: the operator decides.

The rules are in `doctor_cluster` (coordination, disks, clocks, versions), `doctor_table` (log, leader, partitions, mutations)
and `doctor_replica` (presence, state, queue, parts).  Their limits are constants there, each with its unit.
"""

from __future__ import annotations

from msgspec.structs import replace

from replitree.client.admin.doctor_cluster import examine_cluster
from replitree.client.admin.doctor_finding import DoctorFinding, Severity, count, in_order, worst
from replitree.client.admin.doctor_replica import examine_replica
from replitree.client.admin.doctor_state import ClusterState
from replitree.client.admin.doctor_table import examine_table
from replitree.client.transport.standing import entries_between

__all__ = ["DoctorFinding", "Severity", "examine", "worst"]


def examine(state: ClusterState) -> tuple[DoctorFinding, ...]:
    """Judge a cluster.

    Returns
    -------
    tuple
        The findings, worst first.  A table with which nothing is wrong has one finding that says so.
    """
    found = list(examine_cluster(state))
    for table in state.tables:
        about = list(examine_table(table))
        if not table.problem and not table.dropping:
            for replica in table.replicas:
                about += examine_replica(table, replica)
        if not about:
            entries = count(entries_between(table.log_first, table.log_tail), "entry", "entries")
            text = f"{table.name} is well: {count(len(table.replicas), 'replica')} serve it, {entries} in the log"
            about = [DoctorFinding(Severity.OK, "well", text, table=table.name)]
        found += about
    # The same words for several tables are about the replica or the cluster, so they are reported once, without a table.
    alike: dict[DoctorFinding, list[DoctorFinding]] = {}
    for finding in found:
        alike.setdefault(replace(finding, table=None), []).append(finding)
    return in_order([same[0] if len(same) == 1 else general for general, same in alike.items()])
