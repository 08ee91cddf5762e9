"""Changes of what is in a table: merges, mutations, drops, alters; and copies of parts that are kept aside.

Guarantees: every change is one entry of the log and takes effect at its place there, on every replica alike: it concerns
what was inserted before it, nothing that comes later.  What such a call returns is in the log; whether it is done,
`finished` says.  A handle reads its own changes: later snapshots of the connection include those that were finished.

What lies aside (detached parts, frozen snapshots) lies on the disk of one replica, which is named with it; every replica
that executes a detach has the parts.

Absent on purpose: changes of settings, order key and partitioning: make another table and copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from replitree.client.change_results import DetachedPart, Frozen, Killed, Mutation, OptimizeResult
from replitree.client.command import COMMAND_S, Commander, CommandResult
from replitree.client.insert import InsertResult
from replitree.client.upload import Inserted
from replitree.errors import BadInput, ReplicaUnavailable
from replitree.storage.definition import TableDefinition
from replitree.storage.types import format_path, format_type, parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.insert import Written

LOOK_S = 10.0
"""How long a replica may take to list something, in seconds."""


class _Mutations(msgspec.Struct, frozen=True):
    mutations: tuple[Mutation, ...]


class _Detached(msgspec.Struct, frozen=True):
    detached: tuple[DetachedPart, ...]


class _FrozenList(msgspec.Struct, frozen=True):
    frozen: tuple[Frozen, ...]


class _Paused(msgspec.Struct, frozen=True):
    merges_paused: bool


class TableChanges(ABC):
    """The changing half of a `replitree.client.table.Table`, which sets the attributes."""

    _definition: TableDefinition
    _commander: Commander
    _written: Written

    @property
    def name(self) -> str:
        """The table's name."""
        return self._definition.name

    @abstractmethod
    def _known(self, version: int) -> TableDefinition:
        """Return the definition with at least this schema version."""

    # --- merges -------------------------------------------------------------------------------------------------------

    def optimize(
        self,
        partition: str | None = None,
        *,
        final: bool = False,
        timeout_s: float = COMMAND_S,
        spark: SparkSession | None = None,
    ) -> OptimizeResult:
        """Merge parts now that would be merged later, and wait for them.

        Parameters
        ----------
        partition
            Id of one partition; all by default.
        final
            Merge each partition into one part, whatever it costs, and apply the table's policy to all of its rows.
        timeout_s
            How long to wait for the merges, in seconds; they go on afterwards.
        spark
            Make the results with this session, and not on a replica: see `replitree.spark.optimize`.  The job takes the time
            that it takes.

        Raises
        ------
        BadInput
            There is no such partition.
        Unavailable
            No replica takes the merges.
        """
        if spark is not None:
            elsewhere: Any = import_module("replitree.spark.optimize")  # a layer above the client
            made: OptimizeResult = elsewhere.optimize_df(self, spark, partition, final=final, timeout_s=timeout_s)
            return made
        body: dict[str, Any] = {"partition": partition, "final": final}
        _, result = self._commander.ask("POST", "optimize", OptimizeResult, body, timeout_s=timeout_s)
        return result

    def pause_merges(self) -> tuple[str, ...]:
        """Stop merging by itself, on every replica, until `resume_merges` or a restart.

        Returns
        -------
        tuple[str, ...]
            The replicas that paused.

        Raises
        ------
        ReplicaUnavailable
            An active replica does not answer; the others paused.
        """
        return self._at_every_replica("merges/pause", paused=True)

    def resume_merges(self) -> tuple[str, ...]:
        """Merge again, on every replica; results and errors as `pause_merges`."""
        return self._at_every_replica("merges/resume", paused=False)

    def _at_every_replica(self, verb: str, *, paused: bool) -> tuple[str, ...]:
        done, missing = [], []
        for replica in self._commander.replicas():
            try:
                answer = self._commander.ask_at(replica, "POST", verb, _Paused, timeout_s=LOOK_S)
            except ReplicaUnavailable:
                if replica.active:
                    missing.append(replica.name)
                continue
            if answer.merges_paused is paused:
                done.append(replica.name)
        if missing:
            raise ReplicaUnavailable(f"{', '.join(missing)} could not be told; {', '.join(done) or 'none'} could")
        return tuple(sorted(done))

    # --- mutations ----------------------------------------------------------------------------------------------------

    def delete(
        self,
        where: str,
        partition: str | None = None,
        *,
        command_id: str | None = None,
        timeout_s: float = COMMAND_S,
    ) -> CommandResult:
        """Delete the rows that are in the table now and for which a condition is true.

        Parameters
        ----------
        where
            Spark SQL condition over this table's columns.  A row for which it is null stays.
        partition
            Id of the one partition to look at; all by default.
        command_id
            The token of an `OutcomeUnknown`, to repeat that command without doing it twice.
        timeout_s
            How long to wait until it is finished, in seconds; it goes on afterwards.

        Raises
        ------
        BadInput
            The condition can't be read; nothing was changed.
        Unavailable
            No replica takes it; nothing was changed.
        OutcomeUnknown
            It may be in the log: repeat it with the error's token as `command_id`.
        """
        body: dict[str, Any] = {"kind": "delete", "where": where, "assignments": [], "partition": partition}
        return self._command("mutations", body, command_id, timeout_s)

    def update(
        self,
        assignments: Mapping[str, str],
        where: str,
        partition: str | None = None,
        *,
        command_id: str | None = None,
        timeout_s: float = COMMAND_S,
    ) -> CommandResult:
        """Change columns of the rows that are in the table now and for which a condition is true.

        Parameters
        ----------
        assignments
            SQL expressions by column, as in ``{"v": "v + 1", "s": "upper(s)"}``; all of them see the row as it was.
        where, partition, command_id, timeout_s
            As `delete`; errors too.
        """
        if not assignments:
            raise BadInput('an update changes at least one column, as in update({"v": "v + 1"}, "k = 7")')
        pairs = [[column, str(text)] for column, text in assignments.items()]
        body = {"kind": "update", "where": where, "assignments": pairs, "partition": partition}
        return self._command("mutations", body, command_id, timeout_s)

    def mutate(self, sql: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S) -> CommandResult:
        """Run ``DELETE FROM table WHERE …`` or ``UPDATE table SET … WHERE …``; parameters and errors as `delete`.

        Parameters
        ----------
        sql
            The statement.
        command_id, timeout_s
            As `delete`.
        """
        return self._command("mutations", {"sql": sql}, command_id, timeout_s)

    def mutations(self) -> tuple[Mutation, ...]:
        """Return the mutations that a replica has not finished, and the last ones that it has."""
        _, found = self._commander.ask("GET", "mutations", _Mutations, timeout_s=LOOK_S)
        return found.mutations

    def kill_mutation(self, index: int, *, timeout_s: float = COMMAND_S) -> Killed:
        """Let the parts that a mutation has not reached stay as they are, on every replica alike.

        Parameters
        ----------
        index
            The mutation's, from `mutations` or its `CommandResult`.
        timeout_s
            How long to wait for it, in seconds.

        Raises
        ------
        BadInput
            There is no such mutation.
        """
        _, killed = self._commander.ask("DELETE", f"mutations/{int(index)}", Killed, timeout_s=timeout_s)
        return killed

    # --- drops --------------------------------------------------------------------------------------------------------

    def drop_partition(
        self, partition: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> CommandResult:
        """Remove everything that is in a partition now.

        Parameters
        ----------
        partition
            Its id, as in the names of its parts; ``all`` when the table is not partitioned.
        command_id, timeout_s
            As `delete`; errors too.
        """
        return self._command("drop", {"partition": partition}, command_id, timeout_s)

    def drop_blocks(
        self,
        block_min: int,
        block_max: int,
        partition: str | None = None,
        *,
        command_id: str | None = None,
        timeout_s: float = COMMAND_S,
    ) -> CommandResult:
        """Remove the rows of a range of inserts; nothing at all when a part holds rows from inside and outside of it.

        Parameters
        ----------
        block_min, block_max
            Log indexes of inserts (`InsertResult.index`), both included.
        partition
            Only in this partition; in all by default.
        command_id, timeout_s
            As `delete`; errors too.
        """
        if not 0 <= block_min <= block_max:
            raise BadInput(f"blocks {block_min} to {block_max} are no range: give two indexes, the lower one first")
        body: dict[str, Any] = {"blocks": [block_min, block_max]}
        if partition is not None:
            body["partition"] = partition
        return self._command("drop", body, command_id, timeout_s)

    def truncate(self, *, command_id: str | None = None, timeout_s: float = COMMAND_S) -> CommandResult:
        """Remove everything that is in the table now; parameters and errors as `delete`."""
        return self._command("drop", {"all": True}, command_id, timeout_s)

    # --- aside --------------------------------------------------------------------------------------------------------

    def detach_partition(
        self, partition: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> CommandResult:
        """Remove everything that is in a partition now, and keep the parts aside on every replica.

        Parameters
        ----------
        partition, command_id, timeout_s
            As `drop_partition`; errors too.
        """
        return self._command("drop", {"partition": partition, "detach": True}, command_id, timeout_s)

    def detached(self) -> tuple[DetachedPart, ...]:
        """Return the parts that lie aside at one replica and can be attached; `Table.replica` says at which."""
        who, found = self._commander.ask("GET", "detached", _Detached, timeout_s=LOOK_S)
        return tuple(msgspec.structs.replace(part, replica=who) for part in found.detached)

    def attach(self, name: str, *, timeout_s: float = COMMAND_S) -> InsertResult:
        """Insert the rows of a detached part again, and remove it from what lies aside.

        Parameters
        ----------
        name
            From `detached`, at the same replica.
        timeout_s
            How long the replica may take, in seconds.

        Raises
        ------
        BadInput
            No such part lies aside there, or it does not fit the table any more.
        OutcomeUnknown
            It may have been attached; `detached` does not show it any more then.
        """
        hint = "look at the table and at detached() there before it is attached again"
        done = self._commander.once("attach", {"name": name}, Inserted, hint, timeout_s=timeout_s)
        self._written.add(done.index)
        return InsertResult(done.index, done.rows, done.outcome, None)

    def remove_detached(self, name: str) -> None:
        """Delete a detached part for good; parameters as `attach`."""
        self._commander.ask("DELETE", f"detached/{quote(name)}", dict[str, Any], timeout_s=LOOK_S)

    def freeze(self, name: str, note: str = "", *, timeout_s: float = COMMAND_S) -> Frozen:
        """Keep the parts of the table as they are now under a name, as hard links on one replica's disk.

        Parameters
        ----------
        name
            What to call it; letters, digits, ``_`` and ``-``.
        note
            Text for people.
        timeout_s
            How long the replica may take, in seconds.

        Raises
        ------
        BadInput
            The name is taken, or is no name.
        OutcomeUnknown
            `frozen` tells whether it was made.
        """
        hint = "frozen() there tells"
        body = {"name": name, "note": note}
        index = str(self._written.index + 1)
        return self._commander.once("freeze", body, Frozen, hint, timeout_s=timeout_s, min_index=index)

    def frozen(self) -> tuple[Frozen, ...]:
        """Return what was frozen at one replica; `Table.replica` says at which."""
        who, found = self._commander.ask("GET", "frozen", _FrozenList, timeout_s=LOOK_S)
        return tuple(msgspec.structs.replace(each, replica=who) for each in found.frozen)

    def remove_frozen(self, name: str) -> None:
        """Delete a frozen snapshot; parameters as `freeze`."""
        self._commander.ask("DELETE", f"frozen/{quote(name)}", dict[str, Any], timeout_s=LOOK_S)

    # --- columns ------------------------------------------------------------------------------------------------------

    def alter(self, sql: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S) -> CommandResult:
        """Change the columns; parts stay as they are and are read with the new ones.

        Parameters
        ----------
        sql
            As in ``ADD COLUMN x int DEFAULT 0, DROP COLUMN y``, with or without ``ALTER TABLE name``; see
            `replitree.storage.alter_parser`.
        command_id, timeout_s
            As `delete`; errors too.
        """
        result = self._command("alter", {"sql": sql}, command_id, timeout_s)
        if result.schema_version is not None:
            self._known(result.schema_version)
        return result

    def add_column(self, name: str, kind: str, default: str | None = None) -> CommandResult:
        """Add a column that may be null; rows that are there get the default.

        Parameters
        ----------
        name, kind
            Its name, or the path of a new field inside a column, as in ``"a.b"`` or ``"points.element.z"``; and its type as in
            Spark's DDL.  A name with a dot stands in backquotes.
        default
            A literal of Spark SQL, as in ``"0"`` or ``"'none'"``; null without.
        """
        text = f" DEFAULT {default}" if default is not None else ""
        return self.alter(f"ADD COLUMN {_path(name)} {format_type(parse_type(kind))}{text}")

    def drop_column(self, name: str) -> CommandResult:
        """Remove a column, or a field inside one; `name` as `add_column`."""
        return self.alter(f"DROP COLUMN {_path(name)}")

    def rename_column(self, name: str, to: str) -> CommandResult:
        """Give a column, or a field inside one, another name; `name` as `add_column`, `to` without a path."""
        return self.alter(f"RENAME COLUMN {_path(name)} TO {format_path((to,))}")

    def widen_column(self, name: str, kind: str) -> CommandResult:
        """Give a column, or what is inside one, a type that holds all of its values, such as bigint for int."""
        return self.alter(f"ALTER COLUMN {_path(name)} TYPE {format_type(parse_type(kind))}")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _command(self, verb: str, body: dict[str, Any], command_id: str | None, timeout_s: float) -> CommandResult:
        result = self._commander.command(verb, body, command_id, timeout_s=timeout_s)
        if result.finished:  # the rest would make later snapshots wait
            (self._written.add_mutation if verb == "mutations" else self._written.add)(result.index)
        return result


def _path(text: str) -> str:
    """Write a path as statements have it: as it is when it has backquotes, else with those that its names need."""
    return text if "`" in text else format_path(text.split("."))
