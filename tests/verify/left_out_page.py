"""Write the page about what is left out: ``python -m tests.verify.left_out_page``; the results are those of `left_out`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.project.source import ROOT
from tests.verify.left_out import RESULTS, UNNOTICED, Noticed, every_piece
from tests.verify.lines import read_lines

PAGE = ROOT / "docs/verification-left-out.md"

FRESH = "Progress: what is read is proved by the commit, so an older view only makes the commit be refused."
SPACE = "Disk space: the next start of the replica removes it."
COVERED = (
    "Tidiness: a registration that another one covers counts for nothing, and the keeper and the next start take it back"
    " (`forget_covered`). A late commit is refused all the same: it takes its entries out of the queue."
)
REASONS: dict[tuple[str, str], str] = {
    ("count_first", "counted.append(fx.Check("): (
        "Implied by the version of the node: a drop takes the writer's name out of it before it deletes `host` (`counted`)."
        " It is for a replica whose nodes were deleted in another way: `tests/protocol/test_quorum.py`."
    ),
    ("count", "*others"): "As in `count_first`.",
    ("_register", "*(deregister("): COVERED,
    ("_mark", "fx.Check(layout.is_lost(cleaner)"): (
        "Against two cleaners whose sessions have both ended unnoticed, each of which has seen the other one behind. A mark"
        " proves the `host` of a replica that was inactive, so a cleaner with a session can't be marked under its epoch. The"
        " model of the two that was tried has more than 400,000 states."
    ),
    ("_mark", "nobody_added"): (
        "Implied by the `host` of every replica that is marked: the epochs of a name go on past a drop"
        " (`marked-though-joined-again` breaks both). A replica that is added has nothing to do with the marks, and the removal"
        " proves that there is none."
    ),
    ("stand_in_log", "*good"): (
        "A good replica has its entries (I4), so only one gets here whose `is_lost` an operator has written by hand; it is"
        " against two such replicas, each of which takes the other one for good."
    ),
    ("survive", "fx.Check(layout.host(chosen)"): (
        "Implied by the other checks: a drop changes the `is_lost` that the commit sets by version, and a replica that has"
        " joined again was added to `replicas`. An activation meanwhile finds no source, or finds itself good."
    ),
    ("survive", "fx.Check(layout.replicas(table)"): (
        "Implied by the `host` of the chosen replica and the `is_lost` of the others: a replica that is added is lost, too,"
        " unless the log is whole; then the survivor misses nothing."
    ),
    ("survive", "fx.Check(layout.log(table)"): (
        "Against entries that are removed between the first two reads: `tests/protocol/test_survive.py`. A model has no replica"
        " that is good then and lost a moment later."
    ),
    ("_change", "fx.Sync"): "Progress: a session whose view lags would use up its attempts before it sees the change.",
    ("_take_back", "fx.Sync"): "Progress, as in `_change`.",
    ("count_replicas", "fx.Exists"): "The watch: a waiter hears of a lost replica sooner. No model has a clock.",
    ("give_up_overdue", ""): "No model has the clock of coordination; `tests/protocol/test_quorum.py` runs it.",
    (
        "catch_up",
        "fx.Sync",
    ): "Progress: the session sees all commits before its own activation; the sync shows later ones.",
    ("compare_parts", "fx.Reveal"): "Disk space: it releases the files of parts that another part replaced.",
    (
        "compare_parts",
        "fx.RemovePart",
    ): "Disk space: it sets aside files that no registration and no queue entry names.",
    (
        "_publish_empty",
        "fx.RemovePart",
    ): "It moves broken files out of the way of the rename; the disk of the models replaces them.",
    ("_publish_empty", "fx.RemoveStaging"): "No model makes an empty part with other bytes than the entry names.",
    ("execute_drop", "fx."): "A drop of more parts than one commit takes; no model has so many.",
    ("execute_drop", "*(deregister(replica, part) for part in batch)"): "As above.",
    ("publish_result", "fx.RemovePart"): SPACE,
    (
        "publish_result",
        "fx.Delete",
    ): "Only object stores have work marks: `mark-kept` breaks it in the models `stored_merge…`.",
    ("publish_result", "*ending"): "As above.",
    ("declare_lost", "fx.Sync"): FRESH,
    ("stand_in_log", "fx.Sync"): "Progress, as in `catch_up`.",
    ("_read_source", "fx.Sync"): "Progress, as in `catch_up`: the commit of `_begin` was before.",
    (
        "_bring",
        "fx.RemovePart",
    ): "No model has a source whose part is broken and has other content than the files here, which it sets aside.",
    (
        "_take_back",
        "fx.Reveal",
    ): "Disk space: nothing is read while a replica recovers, and the load at its end hides the parts.",
    ("survive", "fx.Sync"): FRESH,
    ("_read", "fx.Sync"): FRESH,
}
"""Why no invariant notices that something is left out: by its function and the beginning of its text."""

TEXT_MAX = 56

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
    return "\n".join((HEAD + _summary(results), "", *rows_noticed(results), "", *rows_unnoticed(results), ""))


def _summary(results: Sequence[Noticed]) -> str:
    count, looked_at = sum(each.how != UNNOTICED for each in results), {each.place for each in results}
    left = sum(piece.place not in looked_at for piece in every_piece())
    is_open = any(each.how == UNNOTICED and reason_of(each) is None for each in results)
    return (
        f"Of {len(results)} pieces a model notices {count}; the second table says what the others are for."
        + (f" {left} more are still to be left out." if left else "")
        + (
            " A piece is *open* when no model of the size in the table notices it, and a larger one may: the command goes on"
            " with these, or `--models` names the models to ask."
            if is_open
            else ""
        )
    )


def rows_noticed(results: Sequence[Noticed]) -> Iterator[str]:
    """Return the table of what a model notices."""
    yield from ("## What a model notices", "", "| function | pieces | noticed by |", "| --- | --- | --- |")
    for (module, function), group in groupby(results, key=lambda each: (each.module, each.function)):
        how = [each.how.partition(":")[0] for each in group if each.how != UNNOTICED]
        if how:
            named = ", ".join(dict.fromkeys(sorted(how)))
            yield f"| `{module.removeprefix('replitree.protocol.')}.{function}` | {len(how)} | {named} |"


def rows_unnoticed(results: Sequence[Noticed]) -> Iterator[str]:
    """Return the table of what no model notices."""
    yield from ("## What no model notices", "", "| function | left out | what it is for |", "| --- | --- | --- |")
    for each in results:
        if each.how == UNNOTICED:
            text = each.text.replace("fx.", "").replace("layout.", "").replace("|", "\\|")
            short = text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
            why = reason_of(each) or f"open ({each.states_max:,} states)"
            yield f"| `{each.function}` | `{short}` | {why} |"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(read_lines(RESULTS, Noticed)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
