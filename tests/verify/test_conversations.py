"""Conversations as golden text: what the procedures do in one given order of events.

``make golden`` (the option ``--rewrite-golden``) writes the lower halves anew; read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.errors import BadInput
from replitree_verify.registry import explore
from replitree_verify.traces.conversation import perform
from tests.conftest import Golden

FOLDER = Path(__file__).parent / "golden"
CONVERSATIONS = sorted(file.name for file in FOLDER.glob("*.txt") if not file.name.startswith("counterexample"))


def test_the_conversations_that_matter_are_there() -> None:
    assert {
        "insert_with_lost_answer.txt",
        "two_inserts_with_one_token.txt",
        "killed_writer_restarts.txt",
        "replaced_process_is_refused.txt",
        "activation_spares_a_running_insert.txt",
        "merge_of_two_parts.txt",
        "mutation_of_one_part.txt",
        "mutation_with_a_scope.txt",
        "drop_during_a_merge.txt",
        "ids_forgotten_by_two_leaders.txt",
        "insert_beside_a_roll_over.txt",
        "restore_is_cut_off.txt",
        "quorum_is_reached.txt",
        "quorum_is_given_up.txt",
    } <= set(CONVERSATIONS)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation(name: str, golden: Golden) -> None:
    golden(f"golden/{name}", perform((FOLDER / name).read_text(encoding="utf-8")))


def test_counterexample_is_told_so_that_a_person_can_read_it(golden: Golden) -> None:
    found = explore("insert_one_token", "look-without-new-epoch")
    golden(
        "golden/counterexample_look_without_new_epoch.txt",
        "\n".join([found.violations[0]["what"], "", *found.trace, ""]),
    )


def test_the_stale_read_is_told_so_that_a_person_can_read_it(golden: Golden) -> None:
    found = explore("read_linearizable", "read-without-sync")
    golden(
        "golden/counterexample_read_without_sync.txt",
        "\n".join([found.violations[0]["what"], "", *found.trace, ""]),
    )


def test_a_line_that_nobody_understands_is_refused() -> None:
    with pytest.raises(BadInput, match="use one of"):
        perform("replicas r1\ndance r1")
