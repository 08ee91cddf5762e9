"""Write the page about what is left out: ``python -m tests.verify.left_out_page``; the results are those of `left_out`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.project.source import ROOT
from tests.verify.left_out import RESULTS, UNNOTICED, Noticed
from tests.verify.lines import read_lines

PAGE = ROOT / "docs/verification-left-out.md"

REASONS: dict[tuple[str, str], str] = {}
"""Why no invariant notices that something is left out: by its function and the beginning of its text."""

TEXT_MAX = 60

HEAD = """\
# Verification: what can be left out

Which effects of the procedures a model notices when they are left out, and what the others are for.

`python -m tests.verify.left_out` leaves out each effect whose outcome is not used, and each operation of a commit, one at a
time, of the modules of inserts, pulls, the executor, quorums, reads, log cleaning, lost parts, recovery and activation. It
explores the models that run the function, the smallest first, until one notices: an invariant is violated, a rare branch is
never reached, the procedure fails, or it repeats itself for ever. `docs/results/left_out.jsonl` has a line for each piece, with
the model; `python -m tests.verify.left_out_page` makes this page of it.

"""


def reason_of(noticed: Noticed) -> str | None:
    """Return why no invariant notices a piece; None: the page does not say yet."""
    found = (
        why
        for (function, text), why in REASONS.items()
        if noticed.function == function and noticed.text.startswith(text)
    )
    return next(found, None)


def page(results: Sequence[Noticed]) -> str:
    """Return the page."""
    return "\n".join((HEAD + _summary(results), "", *_noticed(results), "", *_unnoticed(results), ""))


def _summary(results: Sequence[Noticed]) -> str:
    count = sum(each.how != UNNOTICED for each in results)
    return f"Of {len(results)} pieces a model notices {count}."


def _noticed(results: Sequence[Noticed]) -> Iterator[str]:
    yield from ("## What a model notices", "", "| function | pieces | noticed by |", "| --- | --- | --- |")
    for (module, function), group in groupby(results, key=lambda each: (each.module, each.function)):
        how = [each.how.partition(":")[0] for each in group if each.how != UNNOTICED]
        if how:
            named = ", ".join(dict.fromkeys(sorted(how)))
            yield f"| `{module.removeprefix('replitree.protocol.')}.{function}` | {len(how)} | {named} |"


def _unnoticed(results: Sequence[Noticed]) -> Iterator[str]:
    yield from ("## What no model notices", "", "| function | left out | what it is for |", "| --- | --- | --- |")
    for each in results:
        if each.how == UNNOTICED:
            text = each.text.replace("fx.", "").replace("layout.", "").replace("|", "\\|")
            short = text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
            yield f"| `{each.function}` | `{short}` | {reason_of(each) or ''} |"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(read_lines(RESULTS, Noticed)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
