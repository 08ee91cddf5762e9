"""Follow runs by name: of a model, of seeds, of a file, of the traces of a cluster; and say what was found.

`violations` holds steps that have no way.  `undecided` says why nothing is known beyond some step: that is no violation, and
no success either.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from replitree.errors import BadInput
from replitree.protocol.core.entries import DropEntry
from replitree_published.bridge.cleaning import CLEANING
from replitree_published.bridge.explored import Followed, follow_model
from replitree_published.bridge.mapping import Follower, Undecided
from replitree_published.bridge.outline import Outline
from replitree_published.bridge.quorum import QUORUM
from replitree_published.bridge.recorded import follow_file, write_head, write_outline
from replitree_published.bridge.replay import replay_table
from replitree_published.bridge.replication import REPLICATION
from replitree_published.bridge.simulated import follow_seed
from replitree_published.bridge.traces import read_traces
from replitree_published.packed.models.quorum_queues import RECORDS_MAX
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.traces.trace import trace_of
from replitree_verify.world.kernel import Stage
from replitree_verify.world.model import Model

NOT_FOLLOWED = "the table is restored, a replica is declared good by hand, or its log goes on below a second parent"
NOT_QUORUM = "the mapping onto quorums is for up to 3 inserts and replicas, and nothing is dropped or declared lost"

MAPPINGS = {mapping.name: mapping for mapping in (CLEANING, REPLICATION, QUORUM)}
"""What a model can be mapped onto.

Simulated runs and traces of a cluster are followed on all three, recorded runs on cleaning alone.
"""


@dataclass(slots=True)
class Bridged:
    """What following found.

    Attributes
    ----------
    name, onto
        What was followed; onto which packed model.
    mutant
        What was broken, or None.
    states, steps
        States, or outlines of runs; different changes of coordination that were looked at.
    taken
        Of each action of the packed model: how many different steps took it.  Where several follow, the mapping's name is
        before it.
    violations, trace
        What has no way, each with the seed or the number of steps; the shortest way to it.
    undecided
        Why nothing is known beyond some step; "" when everything is.
    """

    name: str
    onto: str = CLEANING.model.name
    mutant: str | None = None
    states: int = 0
    steps: int = 0
    seconds: float = 0.0
    taken: dict[str, int] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    undecided: str = ""

    def add(self, *followers: Follower) -> None:
        """Count what followers of one run have seen."""
        counted = Counter(self.taken)
        for follower in followers:
            prefix = f"{follower.mapping.name} " if len(followers) > 1 else ""
            counted.update({f"{prefix}{action}": count for action, count in follower.taken.items()})
            self.steps += follower.steps
        self.taken = dict(sorted(counted.items()))


def _stages(mutant: str | None) -> Mapping[str, Stage] | None:
    if mutant is not None and mutant not in MUTANTS:
        raise BadInput(f"there is no mutant {mutant!r}; `replitree verify list` shows them")
    return None if mutant is None else MUTANTS[mutant].stages


def why_not_followed(model: Model, onto: str) -> str:
    """Return why a model can't be followed by a mapping, "" if it can."""
    rolls = any(duty.name == "roll" for duty in model.duties)
    if model.is_hopeless or ((model.forgiven or rolls) and onto != REPLICATION.name):
        return NOT_FOLLOWED
    return "" if onto != QUORUM.name or _has_only_quorums(model) else NOT_QUORUM


def _has_only_quorums(model: Model) -> bool:
    drops = any(isinstance(ask.command, DropEntry) for ask in model.commands) or any(ins.drops for ins in model.inserts)
    return not (model.is_losing or drops) and max(len(model.inserts), len(model.replicas)) <= RECORDS_MAX


def bridge_model(name: str, mutant: str | None = None, onto: str = CLEANING.name) -> Bridged:
    """Follow all runs of a model, up to the first step that has no way.

    Parameters
    ----------
    onto
        Name of the mapping.

    Raises
    ------
    BadInput
        There is no such model, mutant or mapping, or the mapping does not go with the model.
    """
    if onto not in MAPPINGS:
        raise BadInput(f"there is no mapping {onto!r}; there are {', '.join(MAPPINGS)}")
    why = why_not_followed(MODELS[name], onto) if name in MODELS else "there is no such model"
    if why:
        raise BadInput(f"model {name!r} can't be followed: {why}; `replitree verify list` shows all models")
    result, begun = Bridged(name, MAPPINGS[onto].model.name, mutant), time.perf_counter()
    try:
        _explored(result, follow_model(MODELS[name], MAPPINGS[onto], _stages(mutant)))
    except Undecided as reason:
        result.undecided = str(reason)
    result.seconds = time.perf_counter() - begun
    return result


def _explored(result: Bridged, found: Followed) -> None:
    result.states = found.states
    result.add(found.follower)
    if found.wrong is not None:
        result.violations.append({"invariant": "BRIDGE", "what": found.wrong, "steps": len(found.trace)})
        result.trace = trace_of(found.space, found.trace)


def bridge_seeds(
    first: int, end: int, mutant: str | None = None, hours: int = 0, record: Path | None = None
) -> Bridged:
    """Follow the simulated runs of the seeds from `first` up to and without `end`.

    Parameters
    ----------
    record
        A file for the outlines of the run, when it is one seed.

    Raises
    ------
    BadInput
        There is no such mutant, several runs are to be recorded, or the file can't be written.
    """
    if record is not None and end - first != 1:
        raise BadInput("--record takes one run, such as --seeds 7:8")
    onto = f"{CLEANING.model.name}, {REPLICATION.model.name} and {QUORUM.model.name}"
    result, begun = Bridged("simulation", onto, mutant), time.perf_counter()
    try:
        with nullcontext() if record is None else record.open("wb") as file:
            for seed in range(first, end):
                _simulated(result, seed, _stages(mutant), hours, file)
    except OSError as error:
        raise BadInput(f"--record {record} can't be written: {error.strerror}") from error
    result.seconds = time.perf_counter() - begun
    return result


def _simulated(
    result: Bridged, seed: int, stages: Mapping[str, Stage] | None, hours: int, file: IO[bytes] | None
) -> None:
    def write(names: tuple[str, ...]) -> Callable[[Outline], None] | None:
        if file is None:
            return None
        write_head(file, names)
        return lambda outline: write_outline(file, outline)

    try:
        found = follow_seed(seed, CLEANING, stages, hours, write)
    except Undecided as reason:
        result.undecided = result.undecided or f"seed {seed}: {reason}"
        return
    result.states += found.outlines
    result.add(*found.followers)
    if found.run.violation is not None:
        invariant = found.run.violation.partition(":")[0]
        result.violations.append({"invariant": invariant, "what": found.run.violation, "seed": seed})


def bridge_traces(folder: Path) -> Bridged:
    """Follow what a running cluster did, by the traces of its replicas, each table by itself.

    Raises
    ------
    BadInput
        There are no traces, or they can't be followed.
    """
    onto = f"{CLEANING.model.name}, {QUORUM.model.name} and {REPLICATION.model.name}"
    result, begun = Bridged(folder.name, onto), time.perf_counter()
    traces = read_traces(folder)
    result.violations += [{"invariant": "TRACE", "what": f"TRACE: {gap}"} for gap in traces.gaps]
    try:
        for table in () if traces.gaps else traces.tables:
            count, replay, wrong = replay_table(traces, table)
            result.states += count
            result.add(replay.cleaning, replay.inserts.follower, replay.lives.follower)
            if wrong is not None:
                result.violations.append({"invariant": wrong.partition(":")[0], "what": wrong, "table": table})
    except Undecided as reason:
        result.undecided = str(reason)
    result.seconds = time.perf_counter() - begun
    return result


def bridge_file(path: Path) -> Bridged:
    """Follow a recorded run.

    Raises
    ------
    BadInput
        The file is not one of a recorded run.
    """
    result, begun = Bridged(path.name), time.perf_counter()
    try:
        result.states, follower, wrong = follow_file(path, CLEANING)
        result.add(follower)
        if wrong is not None:
            result.violations.append({"invariant": "BRIDGE", "what": wrong, "steps": result.states - 1})
    except Undecided as reason:
        result.undecided = str(reason)
    result.seconds = time.perf_counter() - begun
    return result
