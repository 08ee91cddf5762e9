"""Changes of what is in a table: merges, mutations and drops; with columns and what is kept aside, all changes there are.

Guarantees: every change is one entry of the log and takes effect at its place there, on every replica alike: it concerns
what was inserted before it, nothing that comes later.  What such a call returns is in the log; whether it is done,
`finished` says.  A handle reads its own changes: later snapshots of the connection include those that were finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from replitree.client.arguments import check_arguments
from replitree.client.change.aside import TableAside
from replitree.client.change.change_results import Killed, Mutation, MutationList, OptimizeResult
from replitree.client.change.changing import LOOK_S
from replitree.client.change.columns import TableColumns
from replitree.client.change.command import COMMAND_S, CommandResult
from replitree.client.change.consuming import TableConsumers
from replitree.client.change.storing import TableStorage
from replitree.client.change.streams import TableStreams
from replitree.client.change.tagging import TableTags
from replitree.client.change.views import TableViews
from replitree.client.read.read_options import check_condition
from replitree.client.transport.frames import frames
from replitree.errors import BadInput, ReplicaUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.table import Table


class _Paused(msgspec.Struct, frozen=True):
    merges_paused: bool


@check_arguments
class TableChanges(TableColumns, TableStorage, TableTags, TableAside, TableStreams, TableConsumers, TableViews):
    """The changing half of a `replitree.client.table.Table`."""

    # --- merges -------------------------------------------------------------------------------------------------------

    def optimize(
        self,
        partition: str | None = None,
        *,
        final: bool = False,
        cleanup: bool = False,
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
        cleanup
            With `final` and the policy ``replacing(version, is_deleted)``: also remove the rows that say that their key is
            deleted.  **A row of such a key that is inserted later is shown, however old it is**: ask for it when no writer has
            older rows left.  Each partition is rewritten by this process, as one entry of the log.
        timeout_s
            How long to wait for the merges, in seconds; they go on afterwards.
        spark
            Make the results with this session, and not on a replica: see `replitree.spark.merge.optimize`.  The job
            takes the time that it takes.

        Raises
        ------
        Unavailable
            No replica takes the merges.
        BadInput
            `cleanup` without `final` or without a delete marker, or a partition has too many rows for it.
        """
        if cleanup:
            from replitree.client.change.clean_up import check_clean_up

            if not final:
                raise BadInput(
                    "cleanup=True goes with final=True: a deletion may hide rows of parts that are not merged"
                )
            check_clean_up(self._definition)
        if spark is not None:
            made: OptimizeResult = frames().optimize(self, spark, partition, final=final, timeout_s=timeout_s)
        else:
            body: dict[str, Any] = {"partition": partition, "final": final}
            _, made = self._commander.ask("POST", "optimize", OptimizeResult, body, timeout_s=timeout_s)
        if not cleanup or not made.finished:
            return made
        from replitree.client.change.clean_up import clean_up

        reason = clean_up(cast("Table", self), partition, timeout_s=timeout_s)
        return msgspec.structs.replace(made, finished=not reason, reason=reason)

    def pause_merges(self) -> tuple[str, ...]:
        """Stop merging by itself, on every replica, until `resume_merges` or a restart.

        Returns
        -------
        tuple[str, ...]
            The replicas that paused.

        Raises
        ------
        ReplicaUnavailable
            An active replica does not answer, and the others paused; or none is active.
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
            what = "paused" if paused else "resumed"
            raise ReplicaUnavailable(
                f"merges of {self.name} are {what} on {', '.join(done) or 'no replica'}; {', '.join(missing)} did not answer"
                f" and may not have {what} them: try again"
            )
        if not done:
            raise ReplicaUnavailable(f"no replica of {self.name} is active: start their servers, then try again")
        return tuple(sorted(done))

    # --- mutations ----------------------------------------------------------------------------------------------------

    def delete(
        self,
        where: str,
        partition: str | None = None,
        *,
        final: bool = False,
        command_id: str | None = None,
        timeout_s: float = COMMAND_S,
    ) -> CommandResult:
        """Delete the rows that are in the table now and for which a condition is true.

        In a table with the policy `replacing(version)` an older version that does not match comes back, unless `final` is
        set: then every version of the keys whose winning row matches is deleted.  The winning rows are read first, with the
        level linearizable, and one command deletes their keys.  Rows that other clients insert after the read are not
        covered: a row survives if it replaces the one that was read, by a higher version or by the same version without a
        match.

        Parameters
        ----------
        where
            Spark SQL condition over this table's columns.  A row for which it is null stays.
        partition
            Id of the one partition to look at; all by default.
        final
            Look at the winning row of each key, and delete all rows of its key, at most `FINAL_KEYS_MAX` keys (see
            `replitree.client.change.delete_final`).  Keys that are deleted are left out, unless the condition has the policy's
            delete marker.
        command_id
            The token of an `OutcomeUnknown`, to repeat that command without doing it twice.
        timeout_s
            How long to wait until it is finished, in seconds; it goes on afterwards.

        Raises
        ------
        BadInput
            The condition can't be read; nothing was changed.  With `final`, too: the policy has no version, a losing row with
            the winner's version does not match, or there are too many keys.
        Unavailable
            No replica takes it; nothing was changed.
        OutcomeUnknown
            It may be in the log: repeat it with the error's token as `command_id`.
        """
        check_condition(where)
        if final:
            from replitree.client.change.delete_final import final_delete

            # The lease keeps the parts until the winning rows are read, however long that takes.
            with self._leased(timeout_s) as snapshot:
                where, partition = final_delete(snapshot, where, partition)
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
        check_condition(where)
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
        _, found = self._commander.ask("GET", "mutations", MutationList, timeout_s=LOOK_S)
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
        body: dict[str, Any] = {"blocks": [int(block_min), int(block_max)]}
        if partition is not None:
            body["partition"] = partition
        return self._command("drop", body, command_id, timeout_s)

    def truncate(self, *, command_id: str | None = None, timeout_s: float = COMMAND_S) -> CommandResult:
        """Remove everything that is in the table now; parameters and errors as `delete`."""
        return self._command("drop", {"all": True}, command_id, timeout_s)
