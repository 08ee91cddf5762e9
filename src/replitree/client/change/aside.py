"""What is kept aside: detached parts, out of the table, and frozen snapshots, beside it.

It lies on the disk of one replica, which is named with it; every replica that executes a detach has the parts.
"""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from replitree.client.arguments import check_arguments
from replitree.client.change.change_results import DetachedPart, Frozen
from replitree.client.change.changing import LOOK_S, ChangingTable
from replitree.client.change.command import COMMAND_S, CommandResult
from replitree.client.insert.terms import InsertResult
from replitree.client.insert.upload import InsertAnswer
from replitree.client.transport.frames import note_for_frames
from replitree.errors import ReplicaUnavailable, Unavailable

T = TypeVar("T")


class _Detached(msgspec.Struct, frozen=True):
    detached: tuple[DetachedPart, ...]


class _FrozenList(msgspec.Struct, frozen=True):
    frozen: tuple[Frozen, ...]


@check_arguments
class TableAside(ChangingTable):
    """The half of `replitree.client.table.Table` that keeps parts aside, and takes them back."""

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

    def detached_everywhere(self) -> tuple[tuple[DetachedPart, ...], dict[str, str]]:
        """Return the detached parts of all replicas; and of which replicas that can't be said, and why.  Each is asked once.

        Raises
        ------
        ReplicaUnavailable
            Of none that can be said.
        """
        answers, silent = self._everywhere("detached", _Detached)
        parts = [msgspec.structs.replace(each, replica=who) for who, found in answers for each in found.detached]
        return tuple(parts), silent

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
        _, done = self._commander.once("attach", {"name": name}, InsertAnswer, hint, timeout_s=timeout_s)
        self._written.add(done.index)
        note_for_frames(self, done.index)
        return InsertResult(done.index, done.rows, done.outcome, None)

    def remove_detached(self, name: str) -> None:
        """Delete a detached part for good; parameters as `attach`."""
        self._commander.ask("DELETE", f"detached/{quote(name)}", dict[str, Any], timeout_s=LOOK_S)

    def freeze(self, name: str, note: str = "", *, timeout_s: float = COMMAND_S) -> Frozen:
        """Keep the parts of the table as they are now under a name, as hard links on one replica's disk.

        A name stands for one snapshot: when a replica that can be asked has one of this name, that replica is asked to freeze,
        and no other one.  Where its snapshot is of the same position, with the same note, that is the answer.

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
            The name is taken, by a snapshot with other parts, or is no name.
        ReplicaBehind
            No replica had all that this handle has written in time.
        OutcomeUnknown
            `frozen` tells whether it was made.
        """
        hint = "`replitree table frozen`, or frozen(), tells"
        body = {"name": name, "note": note}
        index = str(self._written.index + 1)
        try:
            snapshots, _ = self.frozen_everywhere()
        except Unavailable:
            # The replica that is asked to freeze says why it can't.
            snapshots = ()
        at = next((each.replica for each in snapshots if each.name == name), None)
        who, made = self._commander.once("freeze", body, Frozen, hint, timeout_s=timeout_s, at=at, min_index=index)
        return msgspec.structs.replace(made, replica=who)

    def frozen(self) -> tuple[Frozen, ...]:
        """Return what was frozen at one replica; `Table.replica` says at which."""
        who, found = self._commander.ask("GET", "frozen", _FrozenList, timeout_s=LOOK_S)
        return tuple(msgspec.structs.replace(each, replica=who) for each in found.frozen)

    def frozen_everywhere(self) -> tuple[tuple[Frozen, ...], dict[str, str]]:
        """Return the frozen snapshots of all replicas; all else is as with `detached_everywhere`."""
        answers, silent = self._everywhere("frozen", _FrozenList)
        snapshots = [msgspec.structs.replace(each, replica=who) for who, found in answers for each in found.frozen]
        return tuple(snapshots), silent

    def _everywhere(self, verb: str, kind: type[T]) -> tuple[list[tuple[str, T]], dict[str, str]]:
        answers: list[tuple[str, T]] = []
        silent: dict[str, str] = {}
        for replica in sorted(self._commander.replicas(), key=lambda each: each.name):
            try:
                answers.append((replica.name, self._commander.ask_at(replica, "GET", verb, kind, timeout_s=LOOK_S)))
            except Unavailable as error:
                silent[replica.name] = str(error)
        if silent and not answers:
            raise ReplicaUnavailable("; ".join(silent.values()))
        return answers, silent

    def remove_frozen(self, name: str) -> None:
        """Delete a frozen snapshot; parameters as `freeze`."""
        self._commander.ask("DELETE", f"frozen/{quote(name)}", dict[str, Any], timeout_s=LOOK_S)
