"""Mending: parts whose files are broken or gone are set aside, hidden from reads, and made whole again.

In this order: copies on this disk are put back (`replitree.replica.parts.salvage`); what is left is fetched from other
replicas; and what these can't send is looked for in the object store, where the table has one
(`replitree.replica.parts.own_shares`); and what has no manifest anywhere is written anew of its data files
(`replitree.replica.parts.bare_files`).  A replica that has registered a part and does not send it is asked to verify
its own: it may have copies, too.

A part of a share that lacks an object is not set aside when the object can be created again from a copy on this disk.

*Lacking* are the registered parts that are not whole on disk, each with the content hash that it should have.  They stay
registered meanwhile: the table has them.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from replitree.errors import BadInput, CorruptPart, NotAuthorized, StoreError
from replitree.protocol.core.effects import FetchPart
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.state.fetch import others_of, refetch, sources_of
from replitree.protocol.upkeep.lost import registered_contents
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.parts.bare_files import BareFiles
from replitree.replica.parts.own_shares import OwnShares
from replitree.replica.parts.salvage import Salvage
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.exchange import Exchange
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.runner import Performer
from replitree.replica.table.mover import Mover
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition

ASK_AGAIN_S = 30.0
"""How long a replica that does not send a part is not asked again to verify its own, in seconds."""


class Host(Protocol):
    """What mending needs of the replica."""

    replica: Replica
    performer: Performer
    progress: Progress
    store: PartStore
    metrics: Metrics
    log: Log
    sharing: Sharing | None
    exchange: Exchange

    @property
    def definition(self) -> TableDefinition:
        """The table's definition, as new as this replica knows it."""

    @property
    def mover(self) -> Mover:
        """Moves parts to where they belong."""


class Mending:
    """Mends the parts of one table replica."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._setting_aside = threading.Lock()
        self._asked_at: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self.lacking: dict[str, str] = {}
        self.unsummed: frozenset[str] = frozenset()
        """Parts in shares that a check found whole, and whose missing block checksums the store did not take."""
        self.salvage = Salvage(host)
        self.own_shares = OwnShares(host, self.salvage)
        self.bare_files = BareFiles(host)

    def mend(self) -> None:
        """Make whole what is registered and not whole on disk: from copies here, from other replicas, from the store."""
        host = self._host
        with self._setting_aside:  # a part that is noted is out of the way by then: the fetch must not find it
            held = frozenset(part.name for part in host.progress.held) if self.lacking else frozenset()
            for name in [name for name in self.lacking if name not in held]:
                del self.lacking[name]  # a later form took its place
            wanted = tuple(sorted(self.lacking.items()))
        losing = host.progress.losing()  # the execution of such an entry publishes and registers the empty part
        wanted = tuple(each for each in wanted if each[0] not in losing)
        if not wanted:
            self.salvage.forget()
            self.own_shares.forget()
            self.bare_files.forget()
            return
        wanted = self._as_registered(wanted)
        lacking = tuple(each for each in wanted if not self._is_here(*each))
        back = frozenset(self.salvage.put_back(lacking))
        away = tuple(each for each in lacking if each[0] not in back)
        still = host.performer.run(refetch(host.replica, away)) if away else ()
        found = self.own_shares.find_again(tuple(each for each in away if each[0] in still))
        found += self._write_anew(tuple(each for each in away if each[0] in still and each[0] not in found))
        still = tuple(name for name in still if name not in found)
        still += self._overtaken(wanted)
        self._have_checked(tuple(each for each in away if each[0] in still))
        with self._setting_aside:
            whole = [name for name, _ in wanted if name not in still and host.store.has_part(name)]
            sharing = host.sharing
            if sharing is not None and whole:
                gone = sharing.own_again(whole)
                whole = [name for name in whole if name not in gone]
            for name in whole:
                self.lacking.pop(name, None)
                self._problems.pop(name, None)
            host.progress.unhide(whole)
        fetched = len(whole)
        if fetched:
            if sharing is not None:
                host.mover.look_again(whole)  # what could not be taken over was sent, and has files of its own
            host.metrics.refetched.labels(host.replica.table.name).inc(fetched)
            host.log.info("parts whole again", parts=fetched, from_copies_here=len(back.intersection(whole)))

    def _overtaken(self, mended: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
        """Return the parts that a log entry has made empty meanwhile, or is about to; take their old content out again.

        The queue is looked at first: an entry leaves it only after the commit that changes the registration, so one of the
        two shows what an executor has published before this.  What it publishes later takes the place of the old content.
        """
        host = self._host
        losing, now = host.progress.losing(), dict(self._as_registered(mended))
        overtaken = tuple(name for name, content in mended if name in losing or now[name] != content)
        for name in overtaken:
            manifest = self._manifest(name)
            if manifest is not None and manifest.content == dict(mended)[name]:
                host.store.quarantine(name, "it was declared lost while it was put back")
        return overtaken

    def _write_anew(self, lacking: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
        """Write parts anew of data files without a manifest, where it is certain that neither disk nor store has a copy."""
        unknown = (self.salvage.why_undecided, self.own_shares.why_undecided)
        return self.bare_files.write_anew([each for each in lacking if not any(why(each[0]) for why in unknown)])

    def _have_checked(self, still: tuple[tuple[str, str], ...]) -> None:
        """Let the replicas verify their own that have registered a part and did not send it."""
        host, now = self._host, time.monotonic()
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in dict(still)}
        due = tuple(each for each in still if now - self._asked_at.get(each[0], float("-inf")) >= ASK_AGAIN_S)
        if not due:
            return
        self._asked_at |= {name: now for name, _ in due}
        self._ask_for_manifests(due)
        wanted = tuple(FetchPart(name, content, ()) for name, content in due)
        for fetch in host.performer.run(sources_of(host.replica, wanted)).values():
            for source in fetch.sources:
                host.exchange.have_checked(source, fetch.part)

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
            return store.has_part(part) and store.verify(part).content == content
        except CorruptPart:
            return False

    # --- what is known of a part that is lacking --------------------------------------------------------------------------

    def why_lacking(self, part: str) -> str:
        """Return what was wrong with a part when it was set aside; empty when that is not known."""
        return self._problems.get(part, "")

    def manifest_of(self, part: str) -> PartManifest | None:
        """Return the manifest of a part that is lacking; None when it is not lacking, or its manifest is not known here."""
        content = self.lacking.get(part)
        return None if content is None else self.salvage.manifest_of(part, content)

    def manifests(self) -> dict[str, PartManifest]:
        """Return the manifests of all parts that are lacking, as far as they are known here."""
        found = {part: self.manifest_of(part) for part in sorted(self.lacking)}
        return {part: manifest for part, manifest in found.items() if manifest is not None}

    def undescribed(self) -> tuple[str, ...]:
        """Return the parts that are lacking of which no manifest is known here, not even another replica's."""
        return tuple(part for part in sorted(self.lacking) if self.manifest_of(part) is None)

    def copy_of(self, part: str, file: str) -> Path | None:
        """Return a verified copy of a data file of a part that is lacking; None when this disk has none."""
        content = self.lacking.get(part)
        return None if content is None else self.salvage.file_of(part, content, file)

    def _ask_for_manifests(self, lacking: tuple[tuple[str, str], ...]) -> None:
        """Get the manifests from other replicas that this disk does not have: readers choose parts by them."""
        unknown = {part: content for part, content in lacking if self.manifest_of(part) is None}
        others = self._host.performer.run(others_of(self._host.replica)) if unknown else ()
        for part, content in unknown.items():
            for other in others:
                manifest = self._host.exchange.manifest_of(other.name, part)
                if manifest is not None and manifest.content == content:
                    self.salvage.know(part, manifest)
                    break

    # --- parts that another process found broken ----------------------------------------------------------------------------

    def suspect(self, part: str) -> bool:
        """Verify a part that another process found broken; a broken one is set aside and made whole.  True: it is whole now.

        Raises
        ------
        CorruptPart
            It is not registered (any more), and is not there or has a damaged manifest.
        CoordinationUnavailable
            Coordination does not answer.
        """
        if part in self.lacking:
            self.bare_files.look_again(part)
            self.salvage.look_again(part)  # by `mend`, which comes soon: the replica that asks may be asked by it
            return False
        host = self._host
        with host.store.expecting() as expect:
            registered = host.performer.run(registered_contents(host.replica, (part,)))
            expect(registered)
        content = registered[part] if part in registered else host.store.manifest(part).content
        problem = self._problem(part, content)
        if not problem or self._healed(part, content):
            return True
        self._set_aside(part, content, problem)
        return False

    def check(self, part: str, content: str) -> str | None:
        """Verify a registered part; set it aside and say why when it is not what it should be.

        Parameters
        ----------
        content
            The content hash with which it is registered.
        """
        problem = self._problem(part, content)
        if not problem:
            self._put_sums(
                part
            )  # first: a part whose manifest has a checksum no longer counts as one of an earlier version
            problem = self._seal(part)
        if parse_part(part) not in self._host.progress.held:
            return None
        if not problem:
            return self._manifest_again(part, content)
        if self._healed(part, content):
            return f"{problem}; it was created again from a copy on this disk"
        self._set_aside(part, content, problem)
        return problem

    def _manifest_again(self, part: str, content: str) -> str | None:
        """Create the manifest of a whole part's share again when it is missing in the store; say so, None: nothing was done.

        The rows are whole, so nothing is set aside when that does not work; other replicas need the manifest to take over.
        """
        manifest, sharing = self._manifest(part), self._host.sharing
        if manifest is None or manifest.share_id is None or sharing is None:
            return None
        try:
            if sharing.objects.has_manifest(manifest) or not self._healed(part, content):
                return None
        except (StoreError, NotAuthorized):
            return None
        return f"the manifest in share {manifest.share_id} was missing; it was created again"

    def _problem(self, part: str, content: str) -> str:
        """Verify every byte of a part; return what is wrong with it, or ""."""
        try:
            found = self._host.store.verify(part).content
        except CorruptPart as error:
            return str(error)
        return "" if found == content else f"{part} has content {found}, and is registered with {content}"

    def _put_sums(self, part: str) -> None:
        """Put the block checksums that the share of a verified part lacks.  No failure is a problem: readers do without."""
        manifest = self._manifest(part)
        try:
            if manifest is not None:
                self.salvage.put_sums(part, manifest)
            self.unsummed -= {part}
        except (StoreError, NotAuthorized, CorruptPart, FileNotFoundError) as error:
            self.unsummed |= {part}
            self._host.log.warning("block checksums not put", part=part, problem=str(error))

    def _seal(self, part: str) -> str:
        """Give the manifest of a verified part of an earlier version a checksum; return what is wrong with it, or ""."""
        try:
            self._host.store.seal(part)
        except CorruptPart as error:
            return str(error)
        return ""

    def _manifest(self, part: str) -> PartManifest | None:
        try:
            return self._host.store.manifest(part)
        except CorruptPart:
            return None

    def _healed(self, part: str, content: str) -> bool:
        """Whether a part, also its manifest, is whole after its missing objects were created again from copies here."""
        manifest = self._manifest(part)
        if manifest is None or manifest.content != content:
            return False
        try:
            return self.salvage.heal(part, manifest) and not self._problem(part, content)
        except (StoreError, NotAuthorized, BadInput) as error:
            self._host.log.warning("missing objects were not created again", part=part, problem=str(error))
            return False

    def _set_aside(self, part: str, content: str, problem: str) -> None:
        """Take a broken part out; it is made whole again by `mend`."""
        host, manifest = self._host, self._manifest(part)
        if manifest is not None and manifest.content == content:
            self.salvage.know(part, manifest)
        host.progress.hide((part,))
        with self._setting_aside:
            self.lacking[part], self._problems[part] = content, problem
            host.store.quarantine(part, problem)
        host.metrics.broken.labels(host.replica.table.name).inc()
        host.log.error("part broken", part=part, problem=problem)
