"""Servers that have a replica of each shard: they stage joint inserts for all shards themselves, and commit them in groups.

A server is one process in each shard; all of them die, and stand still, together.  `JointGroups` mirrors
`replica.insert.joint_groups`: one group at a time, of requests that are of the same shards and the same map, and the same table
of what becomes of its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.membership.activate import Replaced
from replitree.protocol.program.sharded.coordinator import JointRequest, OwnGone
from replitree.protocol.sharded.joint_insert import MapChanged, TokensTaken
from replitree.protocol.sharded.prepare import Participant, ParticipantGone
from replitree.protocol.sharded.shard_map import Shard
from replitree_verify.simulation.sharded.joint_clients import RowsOfAll, Town
from replitree_verify.simulation.sharded.shard_observer import SentRows
from replitree_verify.simulation.sharded.shard_process import ShardProcess

GROUP_MAX = 4
"""Requests of a group: enough for tokens that are taken beside others that are not."""

CERTAIN = (MapChanged, ParticipantGone, OwnGone, TokensTaken, fx.NotInserted, Replaced)
"""Outcomes after which nothing of the group is in any log."""


class JointGroups:
    """Commits what the processes of one server stage; it lives as long as they do.

    Parameters
    ----------
    town
        The world.
    processes
        The server's process of each shard.
    """

    def __init__(self, town: Town, processes: Mapping[Shard, ShardProcess]) -> None:
        self._town, self._processes = town, processes
        self._waiting: list[RowsOfAll] = []
        self._is_busy = False

    def submit(self, asked: RowsOfAll) -> None:
        """Queue rows for the next group; a server that can't take them does not answer."""
        if all(self._processes[shard].is_active for shard in asked.pieces):
            self._waiting.append(asked)
            self._next()

    def _next(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        assert self._town.at_one is not None
        # The committer's thread is not always quick: meanwhile more requests come.
        self._town.cluster.after(self._town.at_one.choice((0, 2, 10)) * self._town.cluster.options.delay, self._begin)

    def _begin(self) -> None:
        group = list[RowsOfAll]()
        for each in self._waiting:
            is_new = each.token not in {other.token for other in group}
            if is_new and len(group) < GROUP_MAX and (not group or each.kind == group[0].kind):
                group.append(each)
        self._waiting = [each for each in self._waiting if each not in group]
        self._town.judge.probes[f"group of {min(len(group), 3)}"] += 1
        self._insert(group, self._over)

    def _over(self) -> None:
        self._is_busy = False
        self._next()

    def _insert(self, group: Sequence[RowsOfAll], then: Callable[[], None]) -> None:
        """Stage the rows of a group for each shard, and commit them; a new try of the rest begins when one has ended."""
        judge, shards = self._town.judge, sorted(group[0].pieces)
        if not all(self._processes[shard].is_active for shard in shards):
            self._give(group, None, then)
            return
        tokens = tuple(each.token for each in group)
        staged: dict[Shard, Participant | None] = {}

        def prepared(shard: Shard, told: Any) -> None:
            staged[shard] = told if isinstance(told, Participant) else None
            if len(staged) < len(shards):
                return
            whole = {at: each for at, each in staged.items() if each is not None}
            if len(whole) == len(shards):
                self._commit(group, whole, then)
                return
            for at, each in whole.items():
                self._processes[at].give_up(each.staging)
            self._give(group, None, then)

        for shard in shards:
            request = self._town.new_request()
            judge.sent[request] = SentRows(tokens, shard, group[0].map_version)
            if self._town.buckets:
                judge.pieces[request] = tuple(piece for each in group for piece in each.pieces[shard])
            self._processes[shard].prepare(request, coordinates=True, hear=partial(prepared, shard))

    def _commit(
        self, group: Sequence[RowsOfAll], staged: Mapping[Shard, Participant], then: Callable[[], None]
    ) -> None:
        own, *others = sorted(staged)
        request = self._town.new_request()
        joint = fx.JointId(f"g{request}")
        first, *also = (fx.BlockId(each.token) for each in group)
        asked = JointRequest(joint, first, fx.Version(group[0].map_version), staged[own].staging, (), also=tuple(also))
        beside = [(self._processes[shard], staged[shard].staging) for shard in others]

        def hear(told: Any) -> None:
            # What no commit can take any more; nothing of what is in a log, or in doubt.
            for shard, each in staged.items():
                self._processes[shard].give_up(each.staging)
            self._became(group, joint, told, then)

        self._processes[own].commit(request, asked, hear, beside)

    def _became(self, group: Sequence[RowsOfAll], joint: fx.JointId, told: Any, then: Callable[[], None]) -> None:
        judge = self._town.judge
        judge.probes[f"group: {type(told).__name__}"] += 1
        if isinstance(told, CERTAIN):
            judge.refuse(joint)
        match told:
            case TokensTaken(tokens) if len(group) > 1:
                alone = [[each] for each in group if each.token in tokens]
                others = [each for each in group if each.token not in tokens]
                self._one_by_one([*alone, *([others] if others else [])], then)
            case fx.NotInserted(why=fx.Why.REQUEST) if len(group) > 1:
                self._one_by_one([[each] for each in group], then)
            case _:
                self._give(group, told, then)

    def _one_by_one(self, groups: list[list[RowsOfAll]], then: Callable[[], None]) -> None:
        if groups:
            self._insert(groups[0], lambda: self._one_by_one(groups[1:], then))
        else:
            then()

    @staticmethod
    def _give(group: Sequence[RowsOfAll], told: Any, then: Callable[[], None]) -> None:
        for each in group:
            each.hear(told)
        then()


__all__ = ["GROUP_MAX", "JointGroups"]
