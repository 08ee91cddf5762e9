"""The interface of coordination with transaction numbers: that of `port`, and reads that tell them.

Apart from `port`, because procedures of one table need no transaction numbers.  Every provider implements both.

Guarantees beside those of `port`:

* All that a commit changes has one transaction number, higher than that of every commit before it (`protocol.core.stamps`).
* `Stamped.seen` was told of by the connection on which the request was sent, before it was sent.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, overload

from typing_extensions import override

from replitree.coordination.port import Coordination, Outcome
from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import GetStamped, Stamped

Asked: TypeAlias = fx.CoordinationEffect | GetStamped
"""What a session performs."""

Told: TypeAlias = Outcome | Stamped
"""What it answers."""


class StampedCoordination(Coordination, Protocol):
    """One session with the service that keeps the tree, which tells transaction numbers, too."""

    @overload
    def perform(self, effect: fx.Get) -> fx.Node | None: ...
    @overload
    def perform(self, effect: fx.GetMany) -> fx.Many: ...
    @overload
    def perform(self, effect: fx.Exists) -> bool: ...
    @overload
    def perform(self, effect: fx.Children) -> tuple[str, ...] | None: ...
    @overload
    def perform(self, effect: fx.ChildrenMany) -> fx.Lists: ...
    @overload
    def perform(self, effect: fx.NextNumber) -> int | None: ...
    @overload
    def perform(self, effect: fx.Sync) -> None: ...
    @overload
    def perform(self, effect: fx.Commit) -> fx.Committed: ...
    @overload
    def perform(self, effect: GetStamped) -> Stamped: ...
    @overload
    def perform(self, effect: fx.CoordinationEffect) -> Outcome: ...
    @override
    def perform(self, effect: Asked) -> Told:
        """Perform one effect; see `port.Coordination.perform`.

        Raises
        ------
        CoordinationUnavailable
            A read could not be had in time.
        NotAuthorized
            The server does not let these credentials do this.
        BadInput
            A commit is too large; nothing was sent.
        """
