"""`docs/verification-storage.md` says how large the models of shared storage are."""

from __future__ import annotations

import pytest

from replitree_verify.pins import PINS
from tests.project.source import ROOT
from tests.verify.prepared.test_prepared import PREPARED
from tests.verify.small_models import SmallModels

PARAGRAPHS = (ROOT / "docs" / "verification-storage.md").read_text(encoding="utf-8").split("\n\n")


def paragraph(heading: str) -> str:
    """Return the paragraph that begins with a heading, on one line."""
    (found,) = (each for each in PARAGRAPHS if each.startswith(f"*{heading}"))
    return " ".join(found.split())


@pytest.mark.parametrize(
    ("heading", "known", "prefix"),
    [
        ("Merges that a client makes*", PREPARED, ""),
    ],
)
def test_the_smallest_and_the_largest_model_are_told(heading: str, known: SmallModels, prefix: str) -> None:
    text = paragraph(heading)
    states = [PINS[model.name].states for model in known.models if model.name.startswith(prefix)]
    if " models of " in text:
        assert f" models of {min(states):,} to {max(states):,} states" in text
    else:
        assert f" {max(states):,} states" in text
