"""Mending: parts whose files are broken or gone are set aside, hidden from reads, and made whole again.

The stages of `replitree.protocol.program.mender` say in which order; here their effects are performed: copies on this disk
(`replitree.replica.parts.salvage`), the object store (`replitree.replica.parts.own_shares`), and data files without a
manifest (`replitree.replica.parts.bare_files`).

A part of a share that lacks an object is not set aside when the object can be created again from a copy on this disk.

*Lacking* are the registered parts that are not whole on disk, each with the content hash that it should have.  They stay
registered meanwhile: the table has them.
"""

from __future__ import annotations

import threading
import time

from replitree.errors import BadInput, CorruptPart, NotAuthorized, StoreError
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program import mender
from replitree.protocol.program.mender_effects import (
    AskAgain,
    AwaitLacking,
    BrokenNotes,
    HaveChecked,
    Losing,
    MendTurn,
    PartContent,
    PutBack,
    SeekFiles,
    SeekShares,
    TakeFromStore,
    TakeOut,
    Telling,
    TellTurn,
    WholeAgain,
    WriteAnew,
)
from replitree.protocol.program.stages import MemoryEffect, ReportTrouble, Then
from replitree.protocol.upkeep.lost import registered_contents
from replitree.replica.kit.evidence import Evidence
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.table.lost_parts import LostParts, PartSources
from replitree.replica.table.mover import Mover
from replitree.storage.parts.manifest import PartManifest

ASK_AGAIN_S = 30.0
"""How long a replica that does not send a part is not asked again to verify its own, in seconds."""


class Mending:
    """Mends the parts of one table replica.

    Parameters
    ----------
    sources, lost_parts
        Where the rows of parts may be, and which parts have been missing for long enough.
    mover
        Looks where parts are that were made whole.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        sources: PartSources,
        lost_parts: LostParts,
        mover: Mover,
    ) -> None:
        self._context = context
        self._store, self._progress, self._lacking = parts.store, parts.progress, parts.lacking
        self._availability = availability
        self._sources, self._salvage, self._storage = sources, sources.salvage, sources.storage
        self._lost_parts = lost_parts
        self._mover = mover
        self._notes = BrokenNotes()
        self._from_copies = frozenset[str]()
        self._rounds, self._setting_aside = threading.RLock(), threading.Lock()
        self._asked_at: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self.unsummed: frozenset[str] = frozenset()
        """Parts in shares that a check found whole, and whose missing block checksums the store did not take."""

    def mend(self) -> None:
        """Do one round: make whole what is registered and not whole on disk, and note in the registrations what is broken."""
        # Two rounds would receive the same part in the same folder.
        with self._rounds:
            # If this round fails, the notes are read again in the next one.
            notes, self._notes = self._notes, BrokenNotes()
            told = self._run(Then(mender.mend, (self._context.replica, notes)))
            self._notes = self._run(told).arguments[1]

    def _run(self, then: Then) -> Then:
        following = Driver(self._context.performer, self._remember).run(then)
        assert isinstance(following, Then), "a mender goes on"
        return following

    # --- effects of the mender ------------------------------------------------------------------------------------------

    def _remember(self, effect: MemoryEffect) -> object:
        """Perform an effect of the mender on memory, disk and store."""
        match effect:
            case AwaitLacking():
                return self._lacking_now()
            case PutBack(parts):
                return self._put_back(parts)
            case SeekShares() | TakeFromStore() | SeekFiles() | WriteAnew():
                return self._search(effect)
            case Losing():
                return self._progress.losing()
            case TakeOut(parts):
                for name, content in parts:
                    manifest = self._manifest(name)
                    if manifest is not None and manifest.content == content:
                        self._store.quarantine(name, "it was declared lost while it was put back")
            case WholeAgain(parts):
                self._show_again(parts)
            case AskAgain(parts):
                names, now = frozenset(name for name, _ in parts), time.monotonic()
                self._asked_at = {
                    name: at for name, at in self._asked_at.items() if name in names and now - at < ASK_AGAIN_S
                }
                due = tuple(each for each in parts if each[0] not in self._asked_at)
                self._asked_at |= {name: now for name, _ in due}
                return due
            case HaveChecked():
                self._have_checked(effect)
            case Telling(missing):
                given_up, epoch = self._lost_parts.given_up(), self._availability.active_epoch()
                unsent = tuple(name for name in missing if name in given_up)
                return None if epoch is None else TellTurn(epoch, tuple(sorted(self._lacking)), unsent)
            case _:
                assert isinstance(effect, ReportTrouble), effect
                self._availability.trouble(Evidence.UNKNOWN, "the answer to a note on a broken part was lost")
        return None

    def _search(
        self, effect: SeekShares | TakeFromStore | SeekFiles | WriteAnew
    ) -> tuple[PartContent, ...] | tuple[str, ...]:
        """Look for parts that no replica has sent."""
        match effect:
            case SeekShares(parts):
                return self._sources.own_shares.due(parts)
            case TakeFromStore(parts, marked):
                return self._sources.own_shares.take(parts, dict(marked))
            case SeekFiles(parts):
                # Only parts of which neither this disk nor the object store may still have the manifest.
                return self._sources.bare_files.due(
                    tuple(
                        each
                        for each in parts
                        if not any(known.why_undecided(each[0]) for known in (self._salvage, self._sources.own_shares))
                    )
                )
            case WriteAnew(parts, marked):
                return self._sources.bare_files.write_anew(parts, dict(marked))

    def _lacking_now(self) -> MendTurn:
        waiting = self._lost_parts.waiting().keys()
        # With this lock, a part that is noted was moved aside already: the fetch must not find the broken one.
        with self._setting_aside:
            held = frozenset(part.name for part in self._progress.held) if self._lacking else frozenset()
            for name in self._lacking.keys() - held:
                # A merge or mutation has replaced the part.
                self._lacking.pop(name, None)
            wanted = tuple(sorted(self._lacking.items()))
            self._salvage.keep(self._lacking.keys() | waiting)
        losing = frozenset(name for name, _ in self._progress.losing())
        wanted = tuple(each for each in wanted if each[0] not in losing)
        if not wanted:
            self._sources.own_shares.forget()
            self._sources.bare_files.forget()
            return MendTurn(())
        sharing = self._storage.sharing
        return MendTurn(wanted, None if sharing is None else sharing.sharer)

    def _put_back(self, parts: tuple[PartContent, ...]) -> frozenset[str]:
        away: list[PartContent] = []
        for name, content in parts:
            # A part may be on the disk after all; every byte of it is read to find that out.
            try:
                is_here = self._store.has_part(name) and self._store.verify(name).content == content
            except CorruptPart:
                is_here = False
            if not is_here:
                away.append((name, content))
        self._from_copies = frozenset(self._salvage.put_back(away))
        return self._from_copies.union(name for name, content in parts if (name, content) not in away)

    def _show_again(self, parts: tuple[str, ...]) -> None:
        context = self._context
        with self._setting_aside:
            whole = [name for name in parts if self._store.has_part(name)]
            for name in whole:
                self._lacking.pop(name, None)
                self._problems.pop(name, None)
            self._progress.unhide(whole)
        if whole:
            if self._storage.sharing is not None:
                # A part whose share could not be taken over was sent, and now has files of its own.
                self._mover.look_again(whole)
            context.metrics.refetched.labels(context.replica.table.name).inc(len(whole))
            from_copies = len(self._from_copies.intersection(whole))
            context.log.info("parts whole again", parts=len(whole), from_copies_here=from_copies)

    def _have_checked(self, asked: HaveChecked) -> None:
        for part, content in asked.parts:
            for other in asked.others if self._salvage.manifest_of(part) is None else ():
                manifest = self._sources.exchange.manifest_of(other, part)
                if manifest is not None and manifest.content == content:
                    self._salvage.know(part, manifest)
                    break
        for fetch in asked.sources:
            for source in fetch.sources:
                self._sources.exchange.have_checked(source, fetch.part)

    # --- what is known of a part that is lacking --------------------------------------------------------------------------

    def why_lacking(self, part: str) -> str:
        """Return what was wrong with a part when it was set aside; empty when that is not known."""
        return self._problems.get(part, "")

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
        if part in self._lacking:
            self._sources.bare_files.look_again(part)
            # The search is left to `mend`: a search here could ask the replica that is waiting for this answer.
            self._salvage.look_again(part)
            return False
        context = self._context
        with self._store.expecting() as expect:
            registered = context.performer.look_up(registered_contents(context.replica, (part,)))
            expect(registered)
        content = registered[part] if part in registered else self._store.manifest(part).content
        problem = self._problem(part, content)
        return not problem or self._healed(part, content) or not self._set_aside(part, content)

    def check(self, part: str, content: str) -> str | None:
        """Verify a registered part; set it aside and say why when it is not what it should be.

        Parameters
        ----------
        content
            The content hash with which it is registered.
        """
        problem = self._problem(part, content)
        if not problem:
            manifest = self._manifest(part)
            try:
                # Before the seal: a part whose manifest has a checksum no longer counts as one of an earlier version.
                if manifest is not None:
                    self._salvage.put_sums(part, manifest)
                self.unsummed -= {part}
            except (StoreError, NotAuthorized, CorruptPart, FileNotFoundError) as error:
                # Readers do without the block checksums of a share, so this is no reason to refuse anything.
                self.unsummed |= {part}
                self._context.log.warning("block checksums not put", part=part, problem=str(error))
            problem = self._seal(part)
        if parse_part(part) not in self._progress.held:
            return None
        if not problem:
            # A manifest that is missing in the store is created again.
            manifest, sharing = self._manifest(part), self._storage.sharing
            if manifest is None or manifest.share_id is None or sharing is None:
                return None
            try:
                # Other replicas need the manifest to take the share over.  The rows are whole, so the part stays if this fails.
                if sharing.objects.has_manifest(manifest) or not self._healed(part, content):
                    return None
            except (StoreError, NotAuthorized):
                return None
            return f"the manifest in share {manifest.share_id} was missing; it was created again"
        if self._healed(part, content):
            return f"{problem}; it was created again from a copy on this disk"
        return problem if self._set_aside(part, content) else None

    def _problem(self, part: str, content: str) -> str:
        """Verify every byte of a part; return the problem, or ""."""
        try:
            found = self._store.verify(part).content
        except CorruptPart as error:
            return str(error)
        return "" if found == content else f"{part} has content {found}, and is registered with {content}"

    def _seal(self, part: str) -> str:
        """Give the manifest of a verified part of an earlier version a checksum; return the problem, or ""."""
        try:
            self._store.moved.seal(part)
        except CorruptPart as error:
            return str(error)
        return ""

    def _manifest(self, part: str) -> PartManifest | None:
        try:
            return self._store.manifest(part)
        except CorruptPart:
            return None

    def _healed(self, part: str, content: str) -> bool:
        """Whether a part, also its manifest, is whole after its missing objects were created again from copies here."""
        manifest = self._manifest(part)
        if manifest is None or manifest.content != content:
            return False
        try:
            return self._salvage.heal(part, manifest) and not self._problem(part, content)
        except (StoreError, NotAuthorized, BadInput) as error:
            self._context.log.warning("missing objects were not created again", part=part, problem=str(error))
            return False

    def _set_aside(self, part: str, content: str) -> bool:
        """Move a part aside that is still broken; `mend` makes it whole again.  False: it is whole."""
        context = self._context
        with self._setting_aside:
            # Another thread may have found it broken as well, and it may have been made whole since: it is verified again.
            problem = self._problem(part, content) or self._seal(part)
            if not problem:
                return False
            manifest = self._manifest(part)
            self._salvage.forget(part)
            if manifest is not None and manifest.content == content:
                self._salvage.know(part, manifest)
            self._progress.hide((part,))
            self._lacking[part], self._problems[part] = content, problem
            self._store.quarantine(part, problem)
        context.metrics.broken.labels(context.replica.table.name).inc()
        context.log.error("part broken", part=part, problem=problem)
        return True
