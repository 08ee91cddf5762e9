"""Giving up what can't be read of a tablet in a blob group: look first, then do what was agreed on, and nothing else.

Every member must answer every read but those that were named: one that falls silent after the group was opened may have what is
missing, as one may that was away before.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from replitree.errors import BadInput, NotLeader, Unavailable
from replitree.tablet.core import lease
from replitree.tablet.core.channels import Channels, in_one_group
from replitree.tablet.core.election import NotElected, Prepared, Won, open_generation
from replitree.tablet.core.losses import FORMAT, Assessment, LossRecord, assess, prepare_loss
from replitree.tablet.group.effects import NotKnown, Overtaken
from replitree.tablet.group.ids import TabletId
from replitree.tablet.members.folders import NAME, OpenGroup, open_group, read_group
from replitree.tablet.runtime.patience import wait_until
from replitree.tablet.runtime.settings import Clock, boot_ns

PATIENCE_S = 30.0
"""How long a silent member is waited for, in seconds, and `group.READ_PATIENCE` times as long for what it is read."""


class Losses:
    """A tablet whose losses may be accepted.

    The group is opened, so a leader that still runs is not disturbed until `accept`, unless a member is gone that it had when
    it opened the group itself (`opening`).

    Parameters
    ----------
    folder
        Of the group's file.
    tablet
        Which tablet.
    without
        Members that are away and given up; every other one must take part, for it may have what is missing.
    clock
        The clock of leases.

    Raises
    ------
    BadInput
        There is no such group; a member is away that was not named, or one was named that is there.
    StoreError
        Too few members take part.
    """

    def __init__(self, folder: Path, tablet: int, without: Sequence[int] = (), clock: Clock = boot_ns) -> None:
        path = folder / NAME
        if not path.is_file():
            raise BadInput(
                f"there is no {path}, so nothing can be given up: name the folder that has the group's file. If that file"
                " is lost, bring it back; a group that is made anew knows nothing of this one's members"
            )
        answers = len(read_group(folder).members) - len(set(without))
        self._group: OpenGroup = open_group(folder, patience_s=PATIENCE_S, read_min=answers)
        away = {number: why for number, why in enumerate(self._group.obstacles) if why is not None}
        self._channels: Channels = in_one_group(TabletId(tablet), self._group.group)
        self._without = tuple(sorted(set(without)))
        self._clock = clock
        # Exactly those: a member that is away and was not named may have
        # what is missing, one that was named and is there may, too.
        if tuple(away) != self._without:
            self._group.close()
            raise BadInput(
                f"members {sorted(away)} are away and {list(self._without)} were named: bring them back, for they may have"
                f" what is missing, or name just those that are given up ({'; '.join(away.values()) or 'all are there'})"
            )

    def look(self) -> Assessment:
        """Return what would stay and what would not.

        Raises
        ------
        BadInput
            There is no such tablet, or everything that counts can be read: there is nothing to accept.
        Unavailable
            That can't be found out now.
        """
        found = self._group.groups.run(assess(self._channels))
        if not isinstance(found, Assessment):
            raise Unavailable(
                f"what is lost can't be told, and nothing was changed: {_reason(found)}; every member must answer but those"
                " that are given up: bring back what is silent, or name it with --without"
            )
        if not (found.unreadable or found.given_up or found.accepted):
            raise BadInput(
                f"tablet {self._channels.tablet} has no entries in this group, so none can be lost:"
                " `replitree tablet inspect` lists the tablets that are there"
            )
        if not found.unreadable:
            raise BadInput("everything that counts can be read: there is no loss to accept")
        return found

    def accept(self, agreed: Assessment, who: str, why: str, lease_s: float | None = None) -> LossRecord:
        """Give up what was agreed on, when no leader answers reads by itself any more; return the record of it.

        Parameters
        ----------
        agreed
            What the operator was shown.
        who, why
            For the record.
        lease_s
            The longest lease that a leader may have had, in seconds, where no entry can be read that says so; 0: none had any.
            What entries say is waited for in any case.

        Raises
        ------
        BadInput
            How long leases were can't be told, and was not said.
        NotLeader
            Another candidate was faster.
        Unavailable
            Too few members answer, or what can be read has changed since: look again.
        """
        wait_s = longest_wait_s(agreed, lease_s)
        if wait_s is None:
            raise BadInput(
                "no entry of the last leader can be read, so the duration of its lease is not known: say --lease SECONDS,"
                " the longest lease that a leader of this tablet was given, or --lease 0 if none was"
            )
        waited_ns = round(wait_s * 1e9)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        record = LossRecord(FORMAT, who, when, why, agreed.kept, agreed.unreadable, agreed.given_up, self._without)
        run = self._group.groups.run
        result: Won | Prepared | NotElected = run(prepare_loss(self._channels, secrets.token_hex(16), agreed, record))
        if isinstance(result, Prepared):
            wait_until(self._clock, self._clock() + waited_ns)
            result = run(open_generation(self._channels, result.generation, result.recovered))
        if isinstance(result, Won):
            return record
        assert isinstance(result, NotElected)
        if isinstance(result.reason, Overtaken):
            raise NotLeader("another candidate was faster; nothing was given up", result.reason.generation)
        raise Unavailable(f"nothing was given up: {_reason(result.reason)}")

    def close(self) -> None:
        """Close the group."""
        self._group.close()


def longest_wait_s(agreed: Assessment, lease_s: float | None = None) -> float | None:
    """Return how long leases are waited for, in seconds: twice the longest; None: that can't be told."""
    if agreed.lease_ns is None and lease_s is None:
        return None
    return lease.WAITED * max((agreed.lease_ns or 0) / 1e9, lease_s or 0.0)


def _reason(answer: object) -> str:
    return answer.reason if isinstance(answer, NotKnown) else str(answer)
