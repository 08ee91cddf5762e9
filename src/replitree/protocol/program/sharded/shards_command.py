"""Commands over shards: the stage of a replica of any shard that takes a user's command for all of them.

As `replitree.protocol.program.commands` for a table that is not sharded; the procedure is `protocol.propose.shards`.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import MutateEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.activate import REPLACED, Replaced
from replitree.protocol.program.commands import find_scope, proposer_of
from replitree.protocol.program.stages import AcceptCommand, Accepted, End, ReportTrouble, Stage
from replitree.protocol.propose.propose import Forgotten, NotProposed
from replitree.protocol.propose.shards import ProposedInShards, ShardsCommand, ShardScope, propose_to_shards


def accept_shards_command(
    replica: Replica, request: fx.RequestId, asked: ShardsCommand, has_condition: bool = False
) -> Stage:
    """Take a user's command for all shards once the process is active.

    Parameters
    ----------
    replica, request, asked
        Which replica takes which command for whom.
    has_condition
        It is a mutation that may leave parts of this shard as they are: its scope here is found first.

    Returns
    -------
    It finds out `ProposedInShards`; or as of `replitree.protocol.program.commands.give_command`.
    """
    accepted: Accepted = yield AcceptCommand(request)
    if has_condition:
        assert isinstance(asked.entry, MutateEntry), "only mutations have conditions"
        scoped = yield from find_scope(asked.entry)
        if scoped.partitions is not UNSET and scoped.since is not UNSET:
            here = ShardScope(scoped.partitions, fx.LogIndex(scoped.since))
            asked = replace(asked, scopes={**asked.scopes, replica.table.name: here})
    outcome = yield from propose_to_shards(proposer_of(replica, accepted), accepted.epoch, asked)
    match outcome:
        case ProposedInShards():
            return End(outcome)
        case Forgotten():
            return End(fx.Duplicate(None))
        case NotProposed(reason):
            return End(fx.NotInserted(reason))
    yield ReportTrouble()
    return End(fx.NotInserted(REPLACED) if isinstance(outcome, Replaced) else fx.MaybeInserted())


__all__ = ["accept_shards_command"]
