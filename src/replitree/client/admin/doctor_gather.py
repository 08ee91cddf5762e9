"""Gathers what the doctor judges: asks coordination, the ZooKeeper servers and every replica process, side by side.

Guarantees: it changes nothing; a replica that does not answer costs some seconds and is reported as a `problem`; only what
the caller must fix (credentials that are refused) is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from replitree.client.admin.doctor_coordination import ask_servers, typical_s
from replitree.client.admin.doctor_facts import Facts, fullest_partition, holders, read_broken, read_facts
from replitree.client.admin.doctor_state import (
    ClusterState,
    CoordinationState,
    KeptTable,
    Lacking,
    MutationState,
    ReplicaState,
    ServerState,
    TableState,
)
from replitree.client.admin.moving import moving_tables
from replitree.client.change.change_results import Mutation
from replitree.client.change.views import open_backfills
from replitree.client.transport.answers import PostponedEntry, check_token, expiry_in, moves_in, piece
from replitree.client.transport.catalog import Catalog
from replitree.client.transport.http import HttpClient
from replitree.client.transport.standing import ReplicaStanding
from replitree.errors import CoordinationUnavailable, NotAuthorized, ReplitreeError, TableNotFound
from replitree.protocol.core.effects import Exists
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.sharded.places import is_shard_name, sharded_name
from replitree.storage.schema.definition import DEFAULT_SETTINGS
from replitree.tls import Contexts
from replitree.wire.consumer_status import ConsumerStatus
from replitree.wire.version import installed_version

ANSWER_S_MAX = 5.0
"""How long a replica may take to say how it is, in seconds."""

ASKED_AT_ONCE = 16
BROKEN_LOOK_MAX = 20_000
"""Up to so many registered parts of a replica that does not answer are looked at for broken ones."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a replica process said about itself, and by when: the middle of the exchange, and half its length, in seconds."""

    said: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    refused: NotAuthorized | None = None
    at_s: float = 0.0
    doubt_s: float = 0.0

    def table(self, name: str) -> dict[str, Any] | None:
        """Return what it says about a table."""
        rows = self.said.get("tables") or ()
        return next((row for row in rows if isinstance(row, dict) and row.get("table") == name), None)


def gather(
    url: str, hosts: Sequence[tuple[str, int]], catalog: Catalog, http: HttpClient, tls: Contexts | None = None
) -> ClusterState:
    """Find out how a cluster is.

    Parameters
    ----------
    url
        The cluster's, without its password.
    hosts
        The ZooKeeper servers.
    catalog, http
        How coordination and the replicas are asked.
    tls
        What TLS with ZooKeeper is made with; None: it speaks clear text.

    Raises
    ------
    NotAuthorized
        Coordination refuses the credentials, or all replicas that answer the token.
    """
    servers = ask_servers(hosts, tls)
    try:
        latency = typical_s(lambda: catalog.perform(Exists("/")))
        tables: dict[str, Facts | str] = {}
        """What coordination says about each table, or why that can't be known."""
        for name in catalog.all_names():
            try:
                tables[name] = catalog.run(read_facts(catalog.place(name))) or "it has just been dropped"
            except CoordinationUnavailable:
                # Not a problem of this table: the doctor reports it once, of coordination.
                raise
            except ReplitreeError as error:
                tables[name] = str(error)
        known = set(catalog.servers())
        for facts in tables.values():
            if isinstance(facts, Facts):
                known.update((each.name, each.address) for each in facts.log.replicas)
        # A process is asked once, whether it acts for replicas or has no table yet.
        asked = sorted(known)
        answers = dict(zip(asked, _side_by_side(lambda who: _ask(http, who[1]), asked), strict=True))
        # A refused token is no answer about a server: without this check the doctor would report all servers as down.
        check_token([each.refused or each.said for each in answers.values() if each.refused or each.said])
        found = tuple(_table(catalog, http, name, facts, answers) for name, facts in sorted(tables.items()))
        restoring = catalog.restoring()
        unfinished = tuple(name for name in catalog.unfinished() if name not in restoring)
        moving = moving_tables(catalog)
    except CoordinationUnavailable as error:
        return ClusterState(
            url=url, version=installed_version(), coordination=CoordinationState(problem=str(error), servers=servers)
        )
    return ClusterState(
        url=url,
        version=installed_version(),
        coordination=CoordinationState(latency_s=latency, servers=servers),
        servers=tuple(_server(name, address, answer) for (name, address), answer in sorted(answers.items())),
        tables=found,
        unfinished=unfinished,
        restoring=restoring,
        moving=moving,
    )


# --- the replica processes ----------------------------------------------------------------------------------------------------


def _ask(http: HttpClient, address: str) -> _Answer:
    if not address:
        return _Answer(problem="it has never been active")
    begin = time.time()
    try:
        answer = http.request(address, "GET", "/v1/status", timeout_s=ANSWER_S_MAX)
        end = time.time()
        return _Answer(answer.decode(dict[str, Any]), "", None, (begin + end) / 2, (end - begin) / 2)
    except ReplitreeError as error:
        return _Answer(problem=str(error), refused=error if isinstance(error, NotAuthorized) else None)


def _side_by_side(call: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="replitree-doctor") as pool:
        return list(pool.map(call, items))


def _server(name: str, address: str, answer: _Answer) -> ServerState:
    said, clock = answer.said, answer.said.get("clock_s")
    return ServerState(
        name=name,
        address=address,
        problem=answer.problem,
        version=said.get("version"),
        clock_apart_s=clock - answer.at_s if isinstance(clock, float) else None,
        clock_doubt_s=answer.doubt_s,
        disk_free=said.get("disk_free_bytes"),
        disk_size=said.get("disk_bytes"),
        disk_reserve=said.get("disk_reserve_bytes"),
        kept_tables=piece(said.get("kept_tables"), tuple[KeptTable, ...], ()),
    )


# --- tables -------------------------------------------------------------------------------------------------------------------


def _table(
    catalog: Catalog, http: HttpClient, name: str, facts: Facts | str, answers: dict[tuple[str, str], _Answer]
) -> TableState:
    if isinstance(facts, str):
        return TableState(name=name, problem=facts)
    settings, problem = DEFAULT_SETTINGS, ""
    try:
        settings = catalog.definition(name).settings
    except CoordinationUnavailable:
        raise
    except TableNotFound:
        problem = "it has just been dropped"
    except ReplitreeError as error:
        problem = str(error)
    # A table that is being dropped may have lost its definition already.
    if problem and not facts.dropping:
        return TableState(name=name, problem=problem)
    said = {each.name: answers[each.name, each.address] for each in facts.log.replicas}
    limits = next((answer.said for answer in said.values() if answer.said.get("log_keep_max") is not None), {})
    partition, partition_parts = fullest_partition(facts)
    return TableState(
        name=name,
        dropping=facts.dropping,
        is_removed_shard=facts.dropping and is_shard_name(name) and sharded_name(name) in catalog.names(),
        restoring=facts.restoring,
        log_first=facts.log.first,
        log_tail=facts.log.tail,
        keep_min=limits.get("log_keep_min"),
        keep_max=limits.get("log_keep_max"),
        leaders=facts.leaders,
        blocks=facts.blocks,
        results=facts.results,
        quorums=facts.quorums,
        partition=partition,
        partition_parts=partition_parts,
        parts_delay=settings.parts_delay,
        parts_max=settings.parts_max,
        mutations=() if facts.dropping else _mutations(http, name, facts, said),
        open_backfills=() if facts.dropping else open_backfills(catalog, name),
        replicas=_replicas(catalog, name, facts, said),
    )


def _replicas(catalog: Catalog, name: str, facts: Facts, said: dict[str, _Answer]) -> tuple[ReplicaState, ...]:
    tables = {each.name: said[each.name].table(name) for each in facts.log.replicas}
    broken: dict[str, frozenset[str]] = {}
    for replica, answer in tables.items():
        held = facts.held[replica]
        # The answer of the replica itself is newer than its nodes.
        if answer is not None:
            broken[replica] = frozenset(map(str, answer.get("lacking") or ()))
        elif len(held) <= BROKEN_LOOK_MAX:
            broken[replica] = frozenset(catalog.run(read_broken(Replica(catalog.place(name), replica), held)))
        else:
            broken[replica] = frozenset()
    states = []
    for standing in facts.log.replicas:
        replica, answered = standing.name, tables[standing.name]
        found = answered or {}
        state = ReplicaState(
            name=replica,
            mark=standing.mark,
            active=standing.active,
            problem=said[replica].problem or ("" if answered is not None else "its server does not have this table"),
            state=str(found.get("state", "down")),
            reason=str(found.get("reason", "")),
            pointer=standing.pointer,
            queue=standing.queue,
            parts=facts.registered[replica],
            postponed=piece(found.get("postponed"), tuple[PostponedEntry, ...], ()),
            # The holders of a part are known only when it is known what is broken on every replica.
            lacking=tuple(
                Lacking(part=part, holders=holders(facts, broken, replica, parse_part(part)))
                for part in sorted(broken[replica])
            ),
            unavailable=piece(found.get("lost_parts"), dict[str, str], {}),
            declared_lost=piece(found.get("declared_lost"), dict[str, int], {}),
            lost_insert_parts=piece(found.get("lost_insert_parts"), dict[str, int], {}),
            unusable_copies=piece(found.get("unusable_copies"), dict[str, dict[str, str]], {}),
            merges_paused=bool(found.get("merges_paused", False)),
            old_parts=int(found.get("old_parts") or 0),
            old_bytes=int(found.get("old_bytes") or 0),
            old_since_s=found.get("old_since_s"),
            moving=moves_in(found.get("moving")),
            expiry=expiry_in(found.get("expiry")),
            leases=int(found.get("leases") or 0),
            tagged_parts=int(found.get("tagged_parts") or 0),
            tagged_bytes=int(found.get("tagged_bytes") or 0),
            feed_parts=int(found.get("feed_parts") or 0),
            feed_bytes=int(found.get("feed_bytes") or 0),
            feed_missing=int(found.get("feed_missing") or 0),
            consumer_bytes=int(found.get("consumer_bytes") or 0),
            consumers=piece(found.get("consumers"), tuple[ConsumerStatus, ...], ()),
        )
        states.append(state)
    return tuple(states)


def _mutations(http: HttpClient, table: str, facts: Facts, said: dict[str, _Answer]) -> tuple[MutationState, ...]:
    """Ask each replica for the mutations that it has not finished; return each mutation as the worst replica sees it."""
    asked = [each for each in facts.log.replicas if said[each.name].table(table) is not None]
    path = f"/v1/tables/{quote(table)}/mutations"

    def ask(standing: ReplicaStanding) -> tuple[Mutation, ...]:
        try:
            answer = http.request(standing.address, "GET", path, timeout_s=ANSWER_S_MAX).decode(dict[str, Any])
        except ReplitreeError:
            return ()
        return piece(answer.get("mutations"), tuple[Mutation, ...], ())

    found: dict[int, MutationState] = {}
    for standing, mutations in zip(asked, _side_by_side(ask, asked), strict=True):
        for mutation in (each for each in mutations if not each.finished):
            known = found.get(mutation.index)
            # A replica that says why it waits tells more than one that has only tried more often.
            if known is None or (known.tries < mutation.tries and not known.reason):
                found[mutation.index] = MutationState(
                    index=mutation.index,
                    command=mutation.command,
                    replicas=(standing.name,),
                    parts_left=mutation.parts_left,
                    tries=mutation.tries,
                    reason=mutation.reason,
                )
            elif mutation.reason:
                replicas, tries = (*known.replicas, standing.name), max(known.tries, mutation.tries)
                found[mutation.index] = msgspec.structs.replace(known, replicas=replicas, tries=tries)
    return tuple(found[index] for index in sorted(found))
