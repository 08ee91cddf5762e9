"""Mutants that are patches: each of them applies, functions get their code back, and what can't be applied is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.protocol.core.parts import parse_part
from replitree.protocol.program.stages import Stage
from replitree.tablet.core import lease
from replitree_verify import patches
from replitree_verify.mutants import mutant
from replitree_verify.patches.patch import Patch, PatchError, find_patch, read_patch, read_patches

ROOMS = sorted(path.name for path in Path(*patches.__path__).iterdir() if list(path.glob("*.patch")))
ALL = [pytest.param(each, id=f"{room}-{each.name}") for room in ROOMS for each in read_patches(room)]

HEAD = "It breaks something.\n\nmodel: lease\ninvariant: I14\n\n"
FILE = "--- a/src/replitree/tablet/core/lease.py\n+++ b/src/replitree/tablet/core/lease.py\n"


def patch_of(*lines: str) -> Patch:
    """Return a patch of the leases with one hunk."""
    return read_patch("this", HEAD + FILE + "@@ -1,1 +1,1 @@\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize("patch", ALL)
def test_every_patch_applies_and_leaves_nothing_behind(patch: Patch) -> None:
    changes = patch._changes  # noqa: SLF001 - the only thing that says which functions are changed
    before = [each.before for each in changes]
    with patch.mutated():
        assert [each.now() for each in changes] == [each.after for each in changes]
    assert [each.now() for each in changes] == before


def test_callers_that_know_a_function_by_name_run_the_mutant() -> None:
    imported_before = lease.released
    with find_patch("leases", "not-given-up").mutated():
        assert imported_before(lease.Tenure(5, 7)) == lease.Tenure(0, 7)
    assert imported_before(lease.Tenure(5, 7)) == lease.Tenure(0, 2)


def test_a_patch_may_add_what_it_calls() -> None:
    patch = patch_of(
        " def released(tenure: Tenure) -> Tenure:",
        '     """Give the lease up; the next entry says so."""',
        "-    return lowered(tenure, 0)",
        "+    return _never(tenure)",
        "+",
        "+",
        "+def _never(tenure: Tenure) -> Tenure:",
        "+    return tenure",
    )
    with patch.mutated():
        assert lease.released(lease.Tenure(5, 7)) == lease.Tenure(5, 7)
    assert not hasattr(lease, "_never")


def test_stages_run_the_mutant_and_what_judges_them_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    wider, inner = parse_part("all_0_5_1"), parse_part("all_2_2_1")

    def look_twice() -> Stage:
        yield wider.covers(inner)
        yield wider.covers(inner)
        return None

    monkeypatch.setitem(mutant._STAGES, "look_twice", look_twice)  # noqa: SLF001 - a stage that is none of the product
    stage = mutant.stages_with(find_patch("log", "covers-without-level"))["look_twice"]()
    assert next(stage)
    assert not wider.covers(inner)
    assert next(stage)
    assert not wider.covers(inner)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["-    return lowered(tenure, 1)", "+    return tenure"],
            "0 times, beginning with 'return lowered(tenure, 1)'",
        ),
        (['-    """', "+    '''"], 'times, beginning with \'"""\''),
        (["-WAITED = 2", "+WAITED = 2  # durations"], "changes nothing that runs"),
        (["-WAITED = 2", "+LASTED = 2"], "removes WAITED"),
        (["-    duration_ns: int = 0", "+    duration_ns: int = 1"], "neither a function nor global"),
        (["-def released(tenure: Tenure)", "+def released(tenure: Tenure, late: bool = False)"], "0 times"),
        (
            ["-def released(tenure: Tenure) -> Tenure:", "+def released(held: Tenure) -> Tenure:"],
            "changes the parameters",
        ),
        (["*WAITED = 2"], "neither context nor change"),
    ],
)
def test_what_can_not_be_applied_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(PatchError, match=f"(?s)this.*{said.replace('(', '[(]').replace(')', '[)]')}"):
        patch_of(*lines).mutated().__enter__()


def test_a_file_without_a_head_is_refused() -> None:
    with pytest.raises(PatchError, match="has no head"):
        read_patch("this", FILE)


def test_a_module_that_is_not_there_is_refused() -> None:
    text = HEAD + FILE.replace("lease", "leash") + "@@ -1 +1 @@\n-WAITED = 2\n+WAITED = 1\n"
    with pytest.raises(PatchError, match=r"replitree[.]tablet[.]core[.]leash, which is not there"):
        read_patch("this", text).mutated().__enter__()
