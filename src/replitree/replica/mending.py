"""Mending: parts whose files are broken or gone are set aside, hidden from reads, and fetched again.

What nobody can send is looked for in the object store, where the table has one (`replitree.replica.own_shares`).

*Lacking* are the registered parts that are not whole on disk, each with the content hash that it should have.  They stay
registered meanwhile: the table has them.
"""

from __future__ import annotations

import threading
from typing import Protocol

from replitree.errors import CorruptPart
from replitree.protocol.fetch import refetch
from replitree.protocol.layout import Replica
from replitree.protocol.lost import registered_contents
from replitree.protocol.parts import parse_part
from replitree.replica.logs import Log
from replitree.replica.metrics import Metrics
from replitree.replica.own_shares import OwnShares
from replitree.replica.progress import Progress
from replitree.replica.runner import Performer
from replitree.replica.sharing import Sharing
from replitree.storage.disk import PartStore


class Host(Protocol):
    """What mending needs of the replica."""

    replica: Replica
    performer: Performer
    progress: Progress
    store: PartStore
    metrics: Metrics
    log: Log
    sharing: Sharing | None


class Mending:
    """Mends the parts of one table replica."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._setting_aside = threading.Lock()
        self.lacking: dict[str, str] = {}
        self.own_shares = OwnShares(host)

    def mend(self) -> None:
        """Fetch again what is registered and not whole on disk, as far as others can send it now."""
        host = self._host
        with self._setting_aside:  # a part that is noted is out of the way by then: the fetch must not find it
            held = frozenset(part.name for part in host.progress.held) if self.lacking else frozenset()
            for name in [name for name in self.lacking if name not in held]:
                del self.lacking[name]  # a later form took its place
            wanted = tuple(sorted(self.lacking.items()))
        if not wanted:
            self.own_shares.forget()
            return
        wanted = self._as_registered(wanted)
        lacking = tuple(each for each in wanted if not self._is_here(*each))
        still = host.performer.run(refetch(host.replica, lacking)) if lacking else ()
        found = self.own_shares.find_again(tuple(each for each in lacking if each[0] in still))
        still = tuple(name for name in still if name not in found)
        with self._setting_aside:
            whole = [name for name, _ in wanted if name not in still and host.store.has_part(name)]
            sharing = host.sharing
            if sharing is not None and whole:
                gone = sharing.own_again(whole)
                whole = [name for name in whole if name not in gone]
            for name in whole:
                self.lacking.pop(name, None)
            host.progress.unhide(whole)
        fetched = len(whole)
        if fetched:
            host.metrics.refetched.labels(host.replica.table.name).inc(fetched)
            host.log.info("parts fetched again", parts=fetched)

    def _as_registered(self, wanted: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return parts with the content that they are registered with by now.

        A lost part, and what was made of it, gets other content under its name; the answer to the commit may have been lost.
        """
        host = self._host
        contents = host.performer.run(registered_contents(host.replica, tuple(name for name, _ in wanted)))
        return tuple((name, contents.get(name, content)) for name, content in wanted)

    def _is_here(self, part: str, content: str) -> bool:
        """Whether a part is on the disk after all, every byte of it, with this content."""
        store = self._host.store
        try:
            return store.has_part(part) and store.verify(part).content_hash == content
        except CorruptPart:
            return False

    def suspect(self, part: str) -> bool:
        """Verify a part that somebody found broken; a broken one is set aside and fetched again.  True: it was whole.

        Raises
        ------
        CorruptPart
            It is not there, or its manifest is damaged.
        """
        content = self._host.store.manifest(part).content_hash
        try:
            self._host.store.verify(part)
        except CorruptPart as error:
            self._set_aside(part, content, str(error))
            return False
        return True

    def check(self, part: str, content: str) -> str | None:
        """Verify a registered part; set it aside and say why when it is not what it should be.

        Parameters
        ----------
        content
            The content hash with which it is registered.
        """
        try:
            found = self._host.store.verify(part).content_hash
            problem = "" if found == content else f"{part} has content {found}, and is registered with {content}"
        except CorruptPart as error:
            problem = str(error)
        if not problem or parse_part(part) not in self._host.progress.held:
            return None
        self._set_aside(part, content, problem)
        return problem

    def _set_aside(self, part: str, content: str, problem: str) -> None:
        """Take a broken part out; it is fetched again."""
        host = self._host
        host.progress.hide((part,))
        with self._setting_aside:
            self.lacking[part] = content
            host.store.quarantine(part, problem)
        host.metrics.broken.labels(host.replica.table.name).inc()
        host.log.error("part broken", part=part, problem=problem)
