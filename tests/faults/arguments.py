"""What the programs of the fault harness have in common on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from tests.faults.schedule import KINDS


def parser_of(description: str | None, kinds: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser of the options that all have; `kinds` are the faults that are drawn from by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(kinds), help=f"faults to draw from: {', '.join(KINDS)}")
    parser.add_argument("--quiet", action="store_true", help="print results only")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line; end with what is wrong with it."""
    arguments = parser.parse_args()
    unknown = set(arguments.kinds.split(",")) - set(KINDS)
    if unknown:
        parser.error(f"no such faults: {', '.join(sorted(unknown))}")
    return arguments


def say(text: str) -> None:
    """Print at once: who waits wants to see where it is."""
    print(text, flush=True)
