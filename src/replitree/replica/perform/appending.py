"""How a process puts a command of a user into the log, and what the client hears when its commit ends in doubt.

Guarantees: an answer or `ReadOnly` is certain.  After anything else that may have put the command into the log the client hears
`OutcomeUnknown`, and the process takes a newer epoch, which fences the commit.
"""

from __future__ import annotations

from collections.abc import Callable

from replitree.errors import BadInput, OutcomeUnknown, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.program.stages import (
    AcceptCommand,
    Accepted,
    LookAtParts,
    MemoryEffect,
    ReportTrouble,
    Stage,
    Then,
)
from replitree.protocol.propose.shards import ProposedInShards
from replitree.replica.kit.evidence import Evidence
from replitree.replica.perform.append_doubt import AppendDoubt
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver


def append_command(
    context: TableContext,
    availability: Availability,
    stage: Callable[..., Stage],
    command: fx.EntryId,
    asked: tuple[object, ...],
    look: Callable[[], object] | None = None,
) -> fx.Inserted | fx.NotInserted:
    """Append a command's entry, unless an entry with its id is in the log; parameters and errors as `run_command`.

    Returns
    -------
    `Inserted` with the entry's index, also if an earlier try has appended it; `NotInserted`: certainly it is not in the log.
    """
    answer = run_command(context, availability, stage, command, asked, look)
    assert isinstance(answer, fx.Inserted | fx.NotInserted)
    return answer


def run_command(
    context: TableContext,
    availability: Availability,
    stage: Callable[..., Stage],
    command: fx.EntryId,
    asked: tuple[object, ...],
    look: Callable[[], object] | None = None,
) -> fx.Inserted | fx.NotInserted | ProposedInShards:
    """Run the stage that takes a command; return what it has found out.

    Parameters
    ----------
    context, availability
        The replica, and its epoch.
    stage, asked
        The stage that takes the command, and its arguments after the replica and the request.
    command
        The command's id.
    look
        Looks at the parts here, to find the scope of a mutation.

    Raises
    ------
    BadInput
        The id was used so long ago that its entry is gone.
    ReadOnly, Unavailable
        It is certainly not in the log.
    OutcomeUnknown
        It may be in the log; it may be repeated with the same id.
    """
    epoch = availability.epoch()
    accepted = Accepted(context.identity.encode(), epoch, context.progress.pointer, fx.StagingId(""))

    def remember(effect: MemoryEffect) -> object:
        match effect:
            case AcceptCommand():
                return accepted
            case LookAtParts():
                assert look is not None, "only mutations have conditions"
                return look()
            case ReportTrouble():
                availability.trouble(Evidence.UNKNOWN, "the answer to a command's commit was lost")
        return None

    # The caller answers the client with what the stage returns.
    doubt = AppendDoubt(lambda effect: None if isinstance(effect, fx.Answer) else context.performer.perform(effect))
    try:
        driver = Driver(context.performer, remember, doubt.perform)
        answer: fx.ClientAnswer | ProposedInShards = driver.finish(
            Then(stage, (context.replica, fx.RequestId(0), *asked))
        )
    except (ReplitreeError, OSError) as error:
        if not doubt.may_be_in_log:
            raise
        availability.trouble(Evidence.UNKNOWN, "a command has ended without an answer")
        raise OutcomeUnknown(f"the command may be in the log ({error}); repeat it with the same id", command) from error
    context.pull_signal.hurry()
    match answer:
        case fx.Inserted() | fx.NotInserted() | ProposedInShards():
            return answer
        case fx.Duplicate():
            raise forgotten(command)
    raise OutcomeUnknown("the command may be in the log; repeat it with the same id", command)


def forgotten(command: str) -> BadInput:
    """Return the error of a command whose id was used before, when the index of its entry is not known any more."""
    return BadInput(
        f"a command with the id {command} was done before, so long ago that its log entry is gone; nothing was done again. "
        "Use another id for another command"
    )


__all__ = ["append_command", "forgotten", "run_command"]
