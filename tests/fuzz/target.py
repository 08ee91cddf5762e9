"""What a target is, and how its corpus is found."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.fuzz.mutate import Mutator, Sealed, Shape

CORPUS = Path(__file__).parent / "corpus"
ACCEPTED, REFUSED, ANY = "accepted", "refused", "any"
"""What the name of a file of the corpus begins with: the outcome that it has to have."""

Read: TypeAlias = Callable[[bytes], object]
"""Reads one input; a return value of False says that it was refused without an exception."""

Open: TypeAlias = Callable[[Path], AbstractContextManager[Read]]
"""Prepares the reading of inputs, once for a child process; it may write into the folder that it gets."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads bytes from outside.

    Attributes
    ----------
    name
        Also the name of its folder in the corpus.
    open
        See `Open`.
    refusals
        The exceptions by which it may refuse an input.
    share
        How many of a run's inputs it gets, relative to the others: cheap targets take most.
    cpu_s_max, bytes_max
        Limits of one input: seconds of CPU, and growth of the process in bytes.
    """

    name: str
    open: Open
    refusals: tuple[type[BaseException], ...]
    shape: Shape = Shape.BYTES
    words: tuple[str, ...] = ()
    seal: Sealed | None = None
    share: int = 100
    cpu_s_max: float = 5.0
    bytes_max: int = 512 << 20

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its corpus, by name."""
        return tuple(sorted((CORPUS / self.name).iterdir()))

    @property
    def mutator(self) -> Mutator:
        """What makes its inputs."""
        corpus = tuple(path.read_bytes() for path in self.files)
        assert corpus, f"{self.name} has no corpus: python -m tests.fuzz.seeds writes it"
        return Mutator(self.name, corpus, self.shape, self.words, self.seal)


def promised(file: Path) -> str | None:
    """Return the outcome that the name of a file of the corpus promises; None when it promises none."""
    outcome = file.name.partition("-")[0]
    return None if outcome == ANY else outcome


def outcome_of(target: Target, read: Read, data: bytes) -> tuple[str, str]:
    """Read an input; return how it ended, and what was wrong with that, if anything."""
    try:
        taken = read(data)
    except target.refusals:
        return REFUSED, ""
    except BaseException as error:  # noqa: BLE001 - each is a finding
        where = "".join(traceback.format_exception(error))
        return "found", f"{type(error).__name__}: {str(error)[:300]}\n{where[-2500:]}"
    return (REFUSED if taken is False else ACCEPTED), ""


def reads(read: Read) -> Open:
    """Return an `Open` of a function that needs nothing to be prepared."""

    @contextmanager
    def opened(_: Path) -> Iterator[Read]:
        yield read

    return opened


def reads_file(read: Callable[[Path], object], name: str = "input") -> Open:
    """Return an `Open` of a function that reads a file: each input is written to the same name before it is read."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Read]:
        path = folder / name

        def one(data: bytes) -> object:
            path.write_bytes(data)
            return read(path)

        yield one

    return opened
