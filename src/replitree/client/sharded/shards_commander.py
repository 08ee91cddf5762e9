"""Commands of a sharded table: one replica of any shard puts them into all logs, then each shard is waited for.

===========================================  =================================================================
what came back                               what happens
===========================================  =================================================================
an answer                                    it names the index in each shard; their replicas are asked until each has
                                             executed it, or the time is up
refused for now (`Unavailable`)              it is certainly in no log: a replica of the next shard is asked
"outcome unknown"                            raised: the command's id repeats it, at whichever shard
===========================================  =================================================================

Before a mutation a replica of each shard is asked which partitions it concerns there, and the answers go with the command.  A
shard that does not answer replaces all its parts.

A shard that can't be asked does not make a command fail that is in the logs: its result is not finished, and says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from replitree.client.change.change_results import Killed, Mutation, MutationList, TtlPlan
from replitree.client.change.changing import LOOK_S
from replitree.client.change.command import CommandResult, check_id
from replitree.client.sharded.side_by_side import SideBySide
from replitree.errors import BadInput, ReplicaUnavailable, ReplitreeError, Unavailable

if TYPE_CHECKING:
    from replitree.client.sharded.shard_table import ShardTable


SCOPE_S = 2.0
"""How long a replica may look for the scope of a mutation, in seconds."""


class _Became(msgspec.Struct, frozen=True):
    """What a replica says of a command in its shard; as of `CommandResult`."""

    applied: bool | None
    finished: bool
    removed: int | None = None
    added: int | None = None
    reason: str = ""


class _Given(msgspec.Struct, frozen=True):
    shards: tuple[tuple[str, int | None], ...]


class _Scope(msgspec.Struct, frozen=True):
    scope: dict[str, Any] | None = None


class ShardsCommander:
    """Sends the commands of one sharded table.  Any thread may use it.

    Parameters
    ----------
    shards
        Returns the shards as they are now.
    beside
        Asks several shards at once.
    """

    def __init__(self, shards: Callable[[], Sequence[ShardTable]], beside: SideBySide) -> None:
        self._shards = shards
        self._beside = beside

    def command(self, verb: str, body: dict[str, Any], command_id: str | None, timeout_s: float) -> CommandResult:
        """Put a command into the logs of all shards, and wait until each has executed it.

        Parameters and errors as of `replitree.client.change.command.Commander.command`.

        Returns
        -------
        CommandResult
            The parts of all shards; `finished` when every shard has finished, `index` that in the first of `shards`.
        """
        known_as, deadline = check_id(command_id), time.monotonic() + timeout_s
        shards = self._asked_first()
        if verb == "mutations":
            body = {**body, "scopes": self._scopes(shards, body)}
        asked, given = self._give(shards, verb, body, known_as, timeout_s)
        by_name = {each.name: each for each in shards}

        def became(entry: tuple[str, int | None]) -> _Became:
            if entry[0] == asked.name:
                return _Became(given.applied, given.finished, given.removed, given.added, given.reason)
            shard = by_name.get(entry[0])
            return _Became(None, False) if shard is None else _wait(shard, entry[1], deadline)

        told = self._beside.each(became, given.shards)
        for (name, at), each in zip(given.shards, told, strict=True):
            if each.finished and at is not None and name in by_name:
                written = by_name[name].written
                (written.add_mutation if verb == "mutations" else written.add)(at)
        index = next((at for _, at in given.shards if at is not None), given.index)
        applied = [each.applied for each in told]
        return replace(
            given,
            index=index,
            applied=True if True in applied else None if None in applied else False,
            finished=all(each.finished for each in told),
            removed=_sum([each.removed for each in told]),
            added=_sum([each.added for each in told]),
            reason="; ".join(each.reason for each in told if each.reason and not each.finished),
        )

    def mutations(self) -> tuple[Mutation, ...]:
        """Return the mutations that a replica of a shard has not finished, and the last ones that it has.

        Returns
        -------
        tuple[Mutation, ...]
            One for each command; its index is that in the first shard that lists it, and its parts are those of all shards.
        """

        def ask(shard: ShardTable) -> tuple[Mutation, ...]:
            return shard.commander.ask("GET", "mutations", MutationList, timeout_s=LOOK_S)[1].mutations

        by_id: dict[str, list[Mutation]] = {}
        for listed in self._beside.each(ask, self._shards()):
            for each in listed:
                by_id.setdefault(each.id, []).append(each)
        found = [
            msgspec.structs.replace(
                its[0],
                parts_done=sum(each.parts_done for each in its),
                parts_left=sum(each.parts_left for each in its),
                tries=max(each.tries for each in its),
                reason=next((each.reason for each in its if each.reason), ""),
                finished=all(each.finished for each in its),
            )
            for its in by_id.values()
        ]
        return tuple(sorted(found, key=lambda each: each.finished))

    def plan_ttl(self, ttl: str) -> TtlPlan:
        """Return what a `ttl` would remove now of all shards; the bound is the lowest one that a replica gives.

        Raises
        ------
        BadInput
            The table can't have it.
        Unavailable
            A shard can't be asked.
        """

        def ask(shard: ShardTable) -> TtlPlan:
            return shard.commander.ask("POST", "ttl/plan", TtlPlan, {"ttl": ttl}, timeout_s=LOOK_S)[1]

        plans = self._beside.each(ask, self._shards())
        return msgspec.structs.replace(
            min(plans, key=lambda each: each.bound),
            partitions=tuple(sorted({partition for each in plans for partition in each.partitions})),
            rows_dropped=sum(each.rows_dropped for each in plans),
            parts_touched=sum(each.parts_touched for each in plans),
            unread=sum(each.unread for each in plans),
        )

    def kill(self, command_id: str, timeout_s: float) -> Killed:
        """Let the parts that a mutation has not reached stay as they are, in every shard.

        Parameters
        ----------
        command_id
            Its id.
        timeout_s
            How long to wait for it, in seconds.

        Raises
        ------
        BadInput
            There is no such command, or it is no mutation.
        Unavailable
            A shard can't be asked; in others it may be killed: kill it again.
        """
        shards = self._asked_first()
        route = f"shards/commands/{quote(command_id, safe='')}"
        _, given = shards[0].commander.ask("GET", route, _Given, timeout_s=LOOK_S)
        by_name = {each.name: each for each in shards}

        def kill(entry: tuple[str, int | None]) -> Killed:
            name, index = entry
            if name not in by_name or index is None:
                # Nothing is left to kill of an entry that every replica has pulled and the log has forgotten.
                return Killed(-1, 0, True)
            return by_name[name].commander.ask("DELETE", f"mutations/{index}", Killed, timeout_s=timeout_s)[1]

        killed = self._beside.each(kill, given.shards)
        return Killed(killed[0].index, sum(each.killed for each in killed), all(each.finished for each in killed))

    def _scopes(self, shards: Sequence[ShardTable], body: dict[str, Any]) -> dict[str, Any]:
        """Return which partitions a mutation concerns, by the name of the shard, of those that can tell."""

        def ask(shard: ShardTable) -> Any:
            if not any(replica.active for replica in shard.replicas()):
                return None
            try:
                return shard.commander.ask("POST", "shards/scope", _Scope, body, timeout_s=SCOPE_S)[1].scope
            except Unavailable:
                return None

        # The replica that puts the command into the logs is most likely one of the first shard, and looks itself.
        found = zip(shards[1:], self._beside.each(ask, shards[1:]), strict=True)
        return {shard.name: scope for shard, scope in found if scope is not None}

    def _asked_first(self) -> list[ShardTable]:
        """Return the shards; first those that have a replica which is active now."""
        return sorted(self._shards(), key=lambda each: not any(replica.active for replica in each.replicas()))

    @staticmethod
    def _give(
        shards: Sequence[ShardTable], verb: str, body: dict[str, Any], known_as: str, timeout_s: float
    ) -> tuple[ShardTable, CommandResult]:
        """Have a replica put a command into the logs; return the shard that it is of, and its answer."""
        refused: Unavailable = ReplicaUnavailable("the table has no shard")
        for shard in shards:
            try:
                given = shard.commander.command(verb, body, known_as, timeout_s=timeout_s)
            except Unavailable as error:
                # Certainly it is in no log.
                refused = error
                continue
            if not given.shards:
                raise BadInput(
                    f"a server of {shard.name} is of a version that changes one shard alone: upgrade all servers"
                )
            return shard, given
        raise refused


def _wait(shard: ShardTable, index: int | None, deadline: float) -> _Became:
    """Wait until a replica of a shard has executed its entry."""
    if index is None:
        # The replicas that follow the log have pulled it.
        return _Became(None, finished=False, reason=f"shard {shard.name}: its entry has left the log")
    left = max(0.0, deadline - time.monotonic())
    try:
        return shard.commander.ask("GET", f"commands/{index}", _Became, timeout_s=left)[1]
    except ReplitreeError as error:
        return _Became(None, finished=False, reason=f"shard {shard.name}: {error}")


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


__all__ = ["ShardsCommander"]
