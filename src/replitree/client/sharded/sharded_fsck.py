"""Fsck of a sharded table: each shard is compared with its own objects, and one report has what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.client.admin.fsck import FsckReport, fsck
from replitree.client.sharded.sharded_catalog import sharded
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.client.transport.catalog import Catalog
    from replitree.client.transport.http import HttpClient


def fsck_shards(
    catalog: Catalog, http: HttpClient, name: str, *, with_repair: bool, grace_s: float, everybody_is_back: bool
) -> FsckReport:
    """Compare the object store of every shard with coordination and the replicas' disks.

    Parameters
    ----------
    name
        The sharded table.
    with_repair, grace_s, everybody_is_back
        As of `replitree.client.admin.fsck.fsck`; errors too.

    Raises
    ------
    BadInput
        The rows of all shards are on local disks.
    """
    # Shards leave a store one by one, so some may be on local disks alone.
    shards = [each for each in sharded(catalog, name).names if catalog.definition(each).is_shared]
    if not shards:
        raise BadInput(f"the rows of {name} are on local disks; `replitree check` looks at each shard")
    reports = [
        fsck(catalog, http, each, with_repair=with_repair, grace_s=grace_s, everybody_is_back=everybody_is_back)
        for each in shards
    ]
    silent: dict[str, list[str]] = {}
    for each in reports:
        for replica, why in each.silent.items():
            silent.setdefault(replica, []).append(f"{each.table}: {why}")
    # What is of no table, such as a trial that was left, every shard's look finds.
    findings = dict.fromkeys(finding for each in reports for finding in each.findings)
    return FsckReport(
        name,
        reports[0].store,
        all(each.clean for each in reports),
        with_repair,
        grace_s,
        sum(each.shares for each in reports),
        sum(each.objects for each in reports),
        sum(each.bytes for each in reports),
        {replica: "; ".join(said) for replica, said in silent.items()},
        tuple(findings),
        next((each.not_judged for each in reports if each.not_judged), ""),
    )


__all__ = ["fsck_shards"]
