"""Commands over shards: the stage of a replica of any shard that takes a user's command for all of them.

As `replitree.protocol.program.commands` for a table that is not sharded; the procedure is `protocol.propose.shards`.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import UNSET

from replitree.protocol.core.effects import InDoubt, LogIndex, RequestId
from replitree.protocol.core.entries import MutateEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.activate import Replaced
from replitree.protocol.program.commands import find_scope, proposer_of
from replitree.protocol.program.stages import AcceptCommand, Accepted, End, ReportTrouble, Stage
from replitree.protocol.propose.shards import ShardsCommand, ShardScope, propose_to_shards


def accept_shards_command(
    replica: Replica, request: RequestId, asked: ShardsCommand, has_condition: bool = False
) -> Stage:
    """Take a user's command for all shards once the process is active; find out what became of it (`ShardsOutcome`).

    Parameters
    ----------
    replica, request, asked
        Which replica takes which command for whom.
    has_condition
        It is a mutation that may leave parts of this shard as they are: its scope here is found first.
    """
    accepted: Accepted = yield AcceptCommand(request)
    if has_condition:
        assert isinstance(asked.entry, MutateEntry), "only mutations have conditions"
        scoped = yield from find_scope(asked.entry)
        if scoped.partitions is not UNSET and scoped.since is not UNSET:
            here = ShardScope(scoped.partitions, LogIndex(scoped.since))
            asked = replace(asked, scopes={**asked.scopes, replica.table.name: here})
    outcome = yield from propose_to_shards(proposer_of(replica, accepted), accepted.epoch, asked)
    if isinstance(outcome, Replaced | InDoubt):
        yield ReportTrouble()
    return End(outcome)


__all__ = ["accept_shards_command"]
