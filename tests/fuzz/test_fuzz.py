"""A slice of the fuzzer: every target reads its corpus and some mutated inputs, in child processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.mutate import INPUT_BYTES_MAX
from tests.fuzz.pool import run_together
from tests.fuzz.run import main
from tests.fuzz.target import ACCEPTED, ANY, REFUSED
from tests.fuzz.targets import MODULE_OF, TARGETS

INPUTS = 50
SEED = 20_260


MODULES = sorted({MODULE_OF[name] for name in TARGETS})


@pytest.mark.parametrize("module", MODULES)
def test_every_input_is_accepted_or_refused(module: str) -> None:
    names = [name for name in TARGETS if MODULE_OF[name] == module]
    inputs = max(INPUTS, *(len(TARGETS[name].files) for name in names))
    found = run_together(names, SEED, inputs)
    problems = [
        f"{finding.target} {finding.number}: {finding.problem}" for each in found.values() for finding in each.findings
    ]
    assert not problems, "\n".join(problems)
    assert set(found) == set(names)
    assert all(each.accepted + each.refused == inputs for each in found.values())
    assert all(each.accepted for name, each in found.items() if name not in NEVER_ACCEPTED)


NEVER_ACCEPTED = {"share"}
"""Its corpus has the manifest of a share without the objects."""


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_are_the_same_in_every_run(name: str) -> None:
    one, two = TARGETS[name].mutator, TARGETS[name].mutator
    numbers = [0, 1, *range(len(one.corpus), len(one.corpus) + 20)]
    inputs = [one.input(SEED, number) for number in numbers]
    assert inputs == [two.input(SEED, number) for number in numbers]
    assert len(set(inputs)) > 10
    assert max(map(len, inputs)) <= INPUT_BYTES_MAX + max(map(len, one.corpus))


@pytest.mark.parametrize("name", TARGETS)
def test_files_of_the_corpus_say_their_outcome(name: str) -> None:
    assert {path.name.partition("-")[0] for path in TARGETS[name].files} <= {ACCEPTED, REFUSED, ANY}


def test_findings_are_saved_and_end_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--target", "self-test", "--inputs", "40", "--findings", str(tmp_path / "found")])
    said = capsys.readouterr().out
    assert code == 1
    for problem in (
        "ValueError: broken",
        "SIGSEGV",
        "again when it is read alone",
        "SIGPROF",
        "grew by",
        "MemoryError",
    ):
        assert problem in said
    assert len(list((tmp_path / "found/self-test").iterdir())) >= 4
