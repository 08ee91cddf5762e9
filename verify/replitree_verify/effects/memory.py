"""Effects on the memory that the threads of a process share."""

from __future__ import annotations

from dataclasses import replace

from replitree.protocol.core import effects as fx
from replitree.protocol.program import stages
from replitree_verify.effects.row import COORDINATION, DISK, DISKS, MEMORY, Row, Touches
from replitree_verify.effects.words import indexes_text
from replitree_verify.outcomes import branches, local
from replitree_verify.outcomes.branch import Branch
from replitree_verify.outcomes.local import remember
from replitree_verify.process.longlife import Appear, any_good
from replitree_verify.process.quorums import decided
from replitree_verify.process.upkeep import PauseMerges
from replitree_verify.world.memory import State

_SERVING = ("state", "epoch")
_QUEUE = ("taken", "given")
_LOADED = ("place", *_QUEUE, "waiting", "left", "torn", "held", "lacking", "loading")
_WORK = ("given", "waiting", "running", "left")


# fmt: off
ROWS = (
    # --- life
    Row(Appear, text=lambda _e, _r: ("starts", ""), shown=True,
        performs=lambda _, here: remember(here, replace(here.memory, state=State.STARTING)), ends=None,
        footprint=MEMORY, joins="never", takes="no time", asked=False, touches=Touches((), ("state",), "seen"), probe=None),
    Row(fx.CurrentEpoch, text=lambda _e, _r: ("remember", "the epoch"), shown=False,
        performs=lambda _, here: remember(here, here.memory, here.memory.epoch), ends=None,
        footprint=MEMORY, joins="alone", takes="no time", asked=False,
        touches=Touches(("epoch",), (), "unseen"),
        probe=lambda seen: seen.stage == "become_active" and seen.outcome is not None and "activated again"),
    Row(fx.AdoptEpoch, text=lambda e, _: ("remember", f"epoch {e.epoch}"), shown=False,
        performs=lambda e, here: remember(here, here.memory.adopting(e.epoch)), ends=None,
        footprint=MEMORY, joins="alone", takes="no time", asked=False,
        touches=Touches(("epoch",), ("epoch",), "unseen"), probe=None),
    Row(fx.CurrentSession, text=lambda _e, _r: ("remember", "the session"), shown=True,
        performs=None, ends=lambda _, scene: (Branch(scene.here.memory.session, scene.here),),
        footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("session",), (), "unseen"),
        probe=lambda seen: (seen.earlier(fx.CurrentSession)[:1] not in ([], [seen.outcome])
                            and "session changed under a read")),
    Row(stages.AwaitReplica, text=lambda _e, _r: ("wakes", "no process holds the replica"), shown=True,
        performs=lambda e, here: None if here.tree.exists(e.is_active) else remember(here, here.memory), ends=None,
        footprint=COORDINATION, joins="never", takes="no time", asked=False,
        touches=Touches((), (), "seen", paths=lambda e, _: ((e.is_active,), ())), probe=lambda _: "replica was busy"),
    Row(stages.AwaitSource, text=lambda _e, _r: ("wakes", "there is a good replica"), shown=True,
        performs=lambda _, here: remember(here, here.memory) if any_good(here.tree, here.replica.table) else None, ends=None,
        footprint=COORDINATION, joins="never", takes="no time", asked=False,
        touches=None, probe=lambda _: "waited for a source"),
    Row(stages.AwaitIdle, text=lambda _e, _r: ("wakes", "nothing runs"), shown=False,
        performs=lambda _, here: None if here.memory.running else remember(here, here.memory), ends=None,
        footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("running",), (), "unseen"), probe=None),
    Row(stages.Forget, text=lambda _e, _r: ("forget", "everything: the replica is not in the table"), shown=False,
        performs=local.forget, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    # A process that got into trouble while it started serves nothing: its life thread activates it again.
    Row(stages.Serve, text=lambda _e, _r: ("serve", ""), shown=True,
        performs=lambda _, here: remember(here, here.memory if here.memory.trouble or not here.memory.is_there else
                                          replace(here.memory, state=State.ACTIVE, waiting=())),
        ends=None, footprint=MEMORY, joins="alone", takes="no time", asked=False,
        touches=Touches(("state", "trouble"), ("state", "waiting"), "seen"), probe=None),
    Row(stages.Stop, text=lambda _e, _r: ("stops", "another process has the replica"), shown=True,
        performs=lambda _, here: remember(here, replace(here.memory, state=State.STOPPED)), ends=None,
        footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches((), ("state",), "seen"), probe=lambda _: "replaced process stopped"),
    Row(stages.AwaitTrouble, text=lambda _e, _r: ("wakes", "must activate again"), shown=False,
        performs=lambda _, here: remember(here, here.memory) if here.memory.trouble and here.memory.is_there else None,
        ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("state", "trouble"), (), "seen"), probe=None),
    Row(stages.ReportTrouble, text=lambda _e, _r: ("trouble", "must activate again"), shown=True,
        performs=lambda _, here: remember(here, here.memory.with_trouble()), ends=None,
        footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("state",), ("state", "trouble"), "seen"), probe=None),
    Row(stages.Missed, text=lambda e, _: ("missed", f"log entry {e.index}: must activate again"), shown=True,
        performs=lambda e, here: remember(here, replace(here.memory.with_trouble(), missed=e.index)), ends=None,
        footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("state",), ("state", "trouble", "missed"), "seen"), probe=lambda _: "entry missed"),
    Row(stages.Quieten, text=lambda _e, _r: ("forget", "the trouble"), shown=False,
        performs=lambda _, here: remember(here, replace(here.memory, trouble=False, missed=None)), ends=None,
        footprint=MEMORY, joins="alone", takes="no time", asked=False,
        touches=Touches((), ("trouble", "missed"), "seen"), probe=None),
    # --- the state, and the pull
    Row(stages.BeginLoad, text=lambda _e, _r: ("load", "the state"), shown=False,
        performs=lambda _, here: remember(here, here.memory.begin_load(here.loader)), ends=None,
        footprint=MEMORY, joins="alone", takes="no time", asked=False,
        touches=Touches((), ("loading",), "unseen"), probe=None),
    Row(stages.TakeOver, shown=False,
        text=lambda e, _: ("remember", f"pointer {e.loaded.place.pointer.index}, queue {indexes_text(e.loaded.queue)}"),
        performs=local.take_over, ends=None, footprint=MEMORY, joins="alone", takes="no time", asked=False,
        touches=Touches(("running", *_LOADED), _LOADED, "seen"),
        probe=lambda seen: ("loaded too early" if seen.outcome is None
                            else seen.stage == "reload_state" and "state loaded again")),
    Row(stages.AskReload, text=lambda _e, _r: ("remember", "to load the queue again"), shown=False,
        performs=lambda _, here: remember(here, replace(here.memory, reload=True)), ends=None,
        footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches((), ("reload",), "unseen"), probe=None),
    Row(stages.AwaitPull, text=lambda _e, _r: ("wakes", "something to pull"), shown=False,
        performs=local.await_pull, ends=None, footprint=COORDINATION, joins="never", takes="no time", asked=False,
        touches=Touches((*_SERVING, "reload", "place"), ("reload",), "unseen"), probe=None),
    Row(stages.TakeIn, shown=False,
        text=lambda e, _: ("remember", f"pointer {e.place.pointer.index}, more in the queue: {indexes_text(e.entries)}"),
        performs=lambda e, here: remember(here, here.memory.pulled(
            e.place, tuple(item for item in e.entries if not item.change.is_empty))),
        ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(("place", "taken"), ("place", "taken", "torn"), "unseen"), probe=None),
    # --- executing
    Row(stages.AwaitWork, shown=False,
        text=lambda e, _: ("wakes", "something to make" if e.makes else "something to execute"),
        performs=local.await_work, ends=None, footprint=DISKS, joins="never", takes="no time", asked=False,
        touches=Touches((*_SERVING, "place", *_QUEUE, "waiting", "running", "held", "lacking"), ("running",), "unseen",
                        # Whether a postponed entry has a chance (`chances`).
                        looks=lambda on, _e, _disk: on.all_parts() | (on.bit("coordination") if on.model.is_losing else 0)),
        probe=None),
    # The probe asks for a batch of which nothing was executed: with a commit before it, some of it was.
    Row(stages.GiveBack, shown=False,
        text=lambda e, _: ("remember", f"executed {list(e.done)}, postponed {[each.index for each in e.postponed]}"),
        performs=local.give_back, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches(_WORK, _WORK, "unseen"),
        probe=lambda seen: (bool(seen.effect.postponed and not seen.earlier(fx.Commit))
                            and ("made later" if seen.stage == "make_next" else "executed later"))),
    # --- inserts and commands
    Row(stages.Accept, shown=True,
        text=lambda e, _: ("accept", "request " + ", ".join(f"{each.id} (token {each.block})" for each in e.requests)),
        performs=local.accept, ends=None, footprint=DISK, joins="never", takes="no time", asked=True,
        touches=Touches((*_SERVING, "place"), ("staging",), "unseen"), probe=None),
    Row(stages.Release, text=lambda e, _: ("release", e.staging), shown=False,
        performs=lambda e, here: remember(here, replace(
            here.memory, staging=tuple(each for each in here.memory.staging if each != e.staging))),
        ends=None, footprint=MEMORY, joins="always", takes="no time", asked=False,
        touches=Touches(("staging",), ("staging",), "unseen"), probe=None),
    Row(stages.AcceptCommand, text=lambda e, _: ("accept", f"request {e.request}"), shown=True,
        performs=lambda e, here: (None if (taken := local.accepted(here, e.request)) is None
                                  else remember(here, here.memory, taken)),
        ends=None, footprint=MEMORY, joins="never", takes="no time", asked=True,
        touches=Touches((*_SERVING, "place"), (), "seen"), probe=None),
    Row(stages.LookAtParts, text=lambda e, _: ("look", f"for rows that {e.command} covers"), shown=True,
        performs=local.look_at_parts, ends=None, footprint=DISK, joins="never", takes="no time", asked=False,
        touches=Touches(("place", "torn", "held"), (), "seen", looks=lambda on, _e, disk: on.bit("parts", disk)), probe=None),
    Row(stages.AwaitMutation, text=lambda e, _: ("wakes", f"{e.id} is in the queue"), shown=True,
        performs=local.await_mutation, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=True,
        touches=Touches((*_SERVING, *_QUEUE), (), "unseen"), probe=None),
    Row(stages.AwaitPulled, text=lambda e, _: ("wakes", f"entry {e.index} is pulled"), shown=True,
        performs=local.await_pulled, ends=branches.await_pulled, footprint=COORDINATION, joins="never", takes="no time",
        asked=False,
        touches=Touches(("place", "torn", *_QUEUE), (), "unseen"), probe=None),
    Row(stages.AwaitDecided, text=lambda e, _: ("waits", f"for the quorum of {e.index}"), shown=True,
        performs=lambda e, here: None if (turn := decided(e, here.memory)) is None else remember(here, here.memory, turn),
        ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=Touches((*_SERVING, "place"), (), "unseen"), probe=None),
    Row(stages.AwaitOpen, text=lambda _e, _r: ("wakes", "an insert is open"), shown=True,
        performs=local.await_open, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=True,
        touches=Touches((*_SERVING, "place"), (), "unseen"), probe=None),
    # --- leading, and upkeep
    Row(stages.AwaitParts, text=lambda e, _: ("leads", f"{', '.join(e.names)} can be merged"), shown=True,
        performs=local.await_parts, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=True,
        touches=Touches((*_SERVING, "place", "leads"), (), "unseen"), probe=None),
    Row(stages.AwaitStrays, text=lambda _e, _r: ("wakes", "a registered part is covered"), shown=True,
        performs=local.await_strays, ends=None, footprint=COORDINATION, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(stages.AwaitElection, text=lambda _e, _r: ("wakes", "the election"), shown=True,
        performs=local.await_election, ends=None, footprint=COORDINATION, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    # The second argument is the replica's node in the election: a replica without one has stood just now, and did not lead.
    Row(stages.Elected, text=lambda e, _: ("remember", "leads" if e.leads else "does not lead"), shown=True,
        performs=lambda e, here: remember(here, replace(here.memory, leads=e.leads)), ends=None,
        footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=None,
        probe=lambda seen: (("leads" if seen.earlier(fx.Commit) else "found itself leading") if seen.effect.leads
                            else seen.told.arguments[1] is not None and "deposed")),
    Row(stages.AwaitCleaning, text=lambda _e, _r: ("wakes", "it is its turn"), shown=False,
        performs=lambda _, here: (None if here.memory.state is not State.ACTIVE or here.memory.epoch is None
                                  else remember(here, here.memory, here.memory.epoch)),
        ends=None, footprint=MEMORY, joins="never", takes="no time", asked=True,
        touches=Touches(_SERVING, (), "seen"), probe=None),
    Row(stages.AwaitPlace, text=lambda _e, _r: ("wakes", "it is its turn"), shown=False,
        performs=local.await_place, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=True,
        touches=None, probe=None),
    Row(PauseMerges, text=None, shown=True,
        performs=lambda _, here: (None if here.memory.state is not State.ACTIVE
                                  else remember(here, replace(here.memory, paused=True))),
        ends=None, footprint=MEMORY, joins="never", takes="no time", asked=True, touches=None, probe=None),
)
# fmt: on
