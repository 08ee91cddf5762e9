"""The doctor: says in words what is wrong with a cluster, why, and what to do.

A pure function from what is known (`doctor_state`) to findings, worst first; `doctor_gather` asks coordination and the
replicas.  It changes nothing: the operator decides.

The rules are in `doctor_cluster` (coordination, disks, clocks, versions), `doctor_table` (log, leader, partitions, mutations)
and `doctor_replica` (presence, state, queue, parts).  Their limits are constants there, each with its unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from replitree.client.admin.doctor_cluster import examine_cluster
from replitree.client.admin.doctor_finding import DoctorFinding, Severity, count, in_order, worst
from replitree.client.admin.doctor_replica import examine_replica
from replitree.client.admin.doctor_state import ClusterState, TableState
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
        about = [*examine_table(table), *_replicas(table)]
        found += about or [_well(table)]
    return in_order(_once(found))


def _once(findings: list[DoctorFinding]) -> list[DoctorFinding]:
    """Say once what was found in the same words for several tables: it is about the replica, or the cluster."""
    found: dict[DoctorFinding, list[DoctorFinding]] = {}
    for finding in findings:
        found.setdefault(replace(finding, table=None), []).append(finding)
    return [same[0] if len(same) == 1 else general for general, same in found.items()]


def _replicas(table: TableState) -> Iterator[DoctorFinding]:
    if not table.problem and not table.dropping:
        for replica in table.replicas:
            yield from examine_replica(table, replica)


def _well(table: TableState) -> DoctorFinding:
    entries = count(entries_between(table.log_first, table.log_tail), "entry", "entries")
    text = f"{table.name} is well: {count(len(table.replicas), 'replica')} serve it, {entries} in the log"
    return DoctorFinding(Severity.OK, "well", text, table=table.name)
