"""What people read when a command line can't be understood: the parser's message in words that say what to write instead.

Typer tells what its validation found, in its own terms; here each of these becomes ours.  What is not in the table stays as it
is.
"""

from __future__ import annotations

import re

NUMBER = r"(-?[\d.]+?)(?:\.0)?"
"""A number in a message; whole ones are told without their zero."""

REWORDED: tuple[tuple[re.Pattern[str], str], ...] = (
    # The parser takes -5 for an option that it does not have.
    (re.compile(r"^No such option: (-\d.*)$"), r"No such option: \1; a value that begins with - comes after --"),
    (re.compile(r"(?<=: )'.*' is not a valid int\b.*"), "it must be a whole number"),
    (re.compile(r"(?<=: )'.*' is not a valid float\b.*"), "it must be a number"),
    (re.compile(rf"\S+ is not in the range {NUMBER}<=x<={NUMBER}\.$"), r"it must be at least \1 and at most \2"),
    (re.compile(rf"\S+ is not in the range x>={NUMBER}\.$"), r"it must be at least \1"),
    (re.compile(rf"\S+ is not in the range x<={NUMBER}\.$"), r"it must be at most \1"),
)
"""What the parser says, and what we say."""

_CHOICES = re.compile(r"is not one of ('.*')\.?$")


def usage_message(error: Exception) -> str | None:
    """Return what to tell of an error of the parser; None when it is none.

    >>> usage_message(ValueError("no usage error")) is None
    True
    """
    text = _text_of(error)
    if text is None:
        return None
    path = getattr(getattr(error, "ctx", None), "command_path", None) or "replitree"
    return f"{reworded(text)} ({path} --help shows how)"


def help_text(error: Exception) -> str | None:
    """Return the help that is shown for a command without arguments, or None."""
    text = _text_of(error)
    return text if text is not None and text.startswith("Usage:") else None


def reworded(text: str) -> str:
    """Return a parser's message in our words.

    >>> reworded("No such option: -5")
    'No such option: -5; a value that begins with - comes after --'
    >>> reworded("Invalid value for '--engine': 'presto' is not one of 'replica', 'spark'.")
    "Invalid value for '--engine': 'presto' is not one of: replica, spark"
    >>> reworded("Invalid value for '--rounds': 0 is not in the range x>=1.")
    "Invalid value for '--rounds': it must be at least 1"
    """
    for pattern, words in REWORDED:
        text = pattern.sub(words, text)
    return _CHOICES.sub(lambda found: f"is not one of: {found[1].replace(chr(39), '')}", text)


def _text_of(error: Exception) -> str | None:
    found = getattr(error, "format_message", None)
    return str(found()) if callable(found) else None
