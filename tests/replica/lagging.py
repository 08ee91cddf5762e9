"""A session at a server that lags behind the ensemble, as a ZooKeeper follower may."""

from __future__ import annotations

import threading
from typing import Any

from typing_extensions import override

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.tree import Tree, answer
from replitree.protocol.core.effects import Commit, Sync


class LaggingCoordination(MemoryCoordination):
    """Answers reads from the tree of an earlier moment, until a `Sync` or a commit of its own brings it up to date."""

    def __init__(self, shared: SharedTree) -> None:
        super().__init__(shared)
        self._moment: Tree | None = None
        self._lock = threading.Lock()

    def lag(self) -> None:
        """Stand still from now on."""
        with self._lock:
            self._moment = self.shared.tree

    @property
    def lags(self) -> bool:
        """Whether it stands still."""
        return self._moment is not None

    @override
    def perform(self, effect: Any) -> Any:
        with self._lock:
            if isinstance(effect, Sync | Commit):
                self._moment = None
            moment = self._moment
        return super().perform(effect) if moment is None else answer(moment, effect)
