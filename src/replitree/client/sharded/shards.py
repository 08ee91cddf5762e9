"""The shards of one sharded table: add, empty and weigh them, and move buckets between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from replitree.client.insert.terms import Written
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier, MoveTerms
from replitree.client.sharded.moving.resharding import MovesStatus
from replitree.client.sharded.shard_table import ShardTable
from replitree.client.sharded.sharded_catalog import sharded
from replitree.errors import BadInput, ReplicaUnavailable
from replitree.protocol.sharded.shard_map import Shard, ShardMap
from replitree.storage.schema.shard_definition import shard_definition

if TYPE_CHECKING:
    from replitree.client.transport.catalog import Catalog
    from replitree.client.transport.http import HttpClient


class TableShards:
    """The shards of a sharded table.  Made by `Connection.shards`.

    `add`, `weigh` and `move` begin moves: from then on inserts go to the new owners.  `carry` brings the rows there; any
    process may do that, also after another one has died.  Moves begin only when nothing moves.
    """

    def __init__(self, catalog: Catalog, http: HttpClient, name: str) -> None:
        self._catalog = catalog
        self._http = http
        self.name = name

    def status(self) -> MovesStatus:
        """Return what moves, and how many buckets each shard owns.

        Raises
        ------
        TableNotFound
            There is no such sharded table.
        """
        return resharding.status_of(self._catalog, self.name)

    def plan(self, weights: Mapping[int, int]) -> ShardMap:
        """Return the map, with its moves, that the table would have with other weights; nothing is changed.

        Parameters and errors as of `weigh`.
        """
        return resharding.plan_weights(self._catalog, self.name, weights)

    def add(self, replicas: Sequence[str] = (), *, weight: int = 1, timeout_s: float = 60.0) -> Shard:
        """Add a shard, and let buckets move there; return its number.

        Parameters
        ----------
        replicas
            Names of the replicas that host it; none: all.
        weight
            Its weight, beside those of the other shards.
        timeout_s
            How long replicas may take to join it, in seconds.

        Raises
        ------
        Unavailable
            No replica has joined it in time: nothing moves yet; add a shard again, and this one is used.
        BadInput
            Buckets move already, or the table can't be resharded; says why.
        CoordinationUnavailable
            It is not known whether the moves have begun; ask for the status.
        """
        return resharding.add_shard(self._catalog, self.name, replicas=replicas, weight=weight, timeout_s=timeout_s)[0]

    def remove(self, shard: int, *, timeout_s: float = 60.0) -> None:
        """Remove a shard that owns nothing: it leaves the table, and its replicas, logs and files go.

        Its buckets have moved away before (`weigh` with the weight 0, and `carry`).  Cuts at which it had rows can't be read
        afterwards, nor changes from there on.  A removal that was cut off is finished by removing again.

        Parameters
        ----------
        shard
            Its number.
        timeout_s
            How long its replicas may take to leave, in seconds.

        Raises
        ------
        BadInput
            Something needs the shard: it owns buckets, or a tag or a consumer needs what only this shard has, or detached or
            frozen parts lie on the disks of its replicas; says what.
        CoordinationUnavailable
            It is not known whether it was removed; repeat it.
        Unavailable
            It was removed, and replicas have not left it in time; repeat it.
        """
        self._check_aside(shard)
        resharding.take_out_shard(self._catalog, self.name, shard, timeout_s=timeout_s)

    def _check_aside(self, shard: int) -> None:
        """Raise if rows lie aside on the disks of a shard's replicas: they would go with it."""
        info = sharded(self._catalog, self.name)
        if Shard(shard) not in info.map.shards:
            return
        table = ShardTable(shard_definition(info.definition, Shard(shard)), self._catalog, self._http, Written())
        (detached, silent), (frozen, unasked) = table.detached_everywhere(), table.frozen_everywhere()
        if detached or frozen:
            raise BadInput(
                f"shard {shard} stays: {len(detached)} detached and {len(frozen)} frozen parts lie on the disks of its"
                " replicas, and would go with it. Attach or remove them first"
            )
        if missing := {**silent, **unasked}:
            raise ReplicaUnavailable(
                f"shard {shard} stays: replicas that may have detached or frozen parts can't be asked ({', '.join(missing)});"
                f" start them, or take them out (replitree drop-replica {table.name})"
            )

    def weigh(self, weights: Mapping[int, int]) -> ShardMap:
        """Let buckets move until each shard owns as many as its weight asks for; return the map.

        Parameters
        ----------
        weights
            Of the shards whose weight changes; 0 empties a shard.

        Raises
        ------
        BadInput, CoordinationUnavailable
            As of `add`; also: there is no such shard.
        """
        return resharding.begin_weights(self._catalog, self.name, weights)

    def move(self, buckets: Iterable[int], target: int) -> ShardMap:
        """Let single buckets move to a shard, whatever the weights ask for; return the map.  Errors as of `weigh`."""
        return resharding.begin_buckets(self._catalog, self.name, buckets, target)

    def turn_back(self) -> None:
        """Let the moves turn back: buckets get their old owners, and what came to the new ones moves back.

        Raises
        ------
        BadInput
            Nothing moves.
        CoordinationUnavailable
            It is not known whether they have turned back; ask for the status.
        """
        resharding.turn_back(self._catalog, self.name)

    def carry(self, tell: Callable[[str], None] = lambda _: None, *, timeout_s: float = 60.0) -> None:
        """Carry the moves on until they have ended; nothing happens if there are none.

        Parameters
        ----------
        tell
            Told in a sentence what happens.
        timeout_s
            How long a replica may take to answer, and how long all replicas that have a batch may be away, in seconds.

        Raises
        ------
        Unavailable
            Rows could not be read or prepared again and again: carry the moves on later.
        """
        MoveCarrier(self._catalog, self._http, self.name, MoveTerms(timeout_s, tell)).run()
