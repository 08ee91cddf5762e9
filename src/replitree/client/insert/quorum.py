"""What a client says of the quorum of an insert."""

from __future__ import annotations

from dataclasses import dataclass

from replitree.errors import BadInput

TIMEOUT_S = 10.0
"""How long an insert waits for its quorum, in seconds, unless the caller says otherwise."""

TIMEOUT_S_MAX = 300.0

ANSWER_S = 10.0
"""How long the answer may take after that, in seconds: an insert that is given up is taken back first."""


@dataclass(frozen=True, slots=True)
class InsertQuorum:
    """How many replicas must have the rows, and for how many seconds that is waited for.

    `size` is a number, ``"majority"`` or ``"all"``.
    """

    size: int | str
    timeout_s: float = TIMEOUT_S

    @property
    def answered_s(self) -> float:
        """Within how many seconds a replica answers."""
        return self.timeout_s + ANSWER_S

    def said(self) -> dict[str, str]:
        """Return what the query of a request says of it.

        >>> InsertQuorum("majority", 2.5).said()
        {'quorum': 'majority', 'quorum_timeout_s': '2.5'}
        """
        return {"quorum": str(self.size), "quorum_timeout_s": f"{self.timeout_s:g}"}


def quorum_of(size: int | str | None, timeout_s: float | None) -> InsertQuorum | None:
    """Return the quorum that a caller asks for, if any.

    Raises
    ------
    BadInput
        It is no number of replicas and no word that there is, or the time is none.

    >>> quorum_of("2", None)
    InsertQuorum(size=2, timeout_s=10.0)
    """
    if size is None:
        if timeout_s is not None:
            raise BadInput("quorum_timeout_s says how long a quorum is waited for: say quorum, too")
        return None
    number = int(size) if not isinstance(size, str) or size.isdecimal() else None
    if (size not in ("majority", "all")) if number is None else number < 1:
        raise BadInput(f'quorum={size!r}: say a number of replicas from 1 on, "majority" or "all"')
    seconds = TIMEOUT_S if timeout_s is None else timeout_s
    if not 0 < seconds <= TIMEOUT_S_MAX:
        raise BadInput(f"quorum_timeout_s={seconds}: use more than 0 and at most {TIMEOUT_S_MAX:g} seconds")
    return InsertQuorum(size if number is None else number, seconds)
