"""The process beside an executor: every request is answered, and it ends when it is idle."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator

import msgspec
import pytest

from replitree.errors import StoreError
from replitree.spark.catalog.conversation import Conversation
from replitree.spark.catalog.put_process import lines_until_idle


class Asked(msgspec.Struct, frozen=True):
    id: int
    what: str


def answered(*asked: Asked) -> dict[int, dict[str, object]]:
    def do(request: Asked) -> str:
        if request.what == "store":
            raise StoreError("no answer")
        return {"one": "done"}[request.what]

    answers = io.BytesIO()
    conversation = Conversation(answers, 2)
    conversation.answer(map(msgspec.json.encode, asked), msgspec.json.Decoder(Asked).decode, do)
    assert not conversation.is_busy
    told = [json.loads(line) for line in answers.getvalue().splitlines()]
    return {each.pop("id"): each for each in told}


def test_every_request_has_a_result_or_an_error() -> None:
    found = answered(Asked(1, "one"), Asked(2, "store"), Asked(3, "other"))
    assert found[1] == {"result": "done"}
    assert found[2] == {"error": {"kind": "StoreError", "message": "no answer"}}
    assert found[3] == {"error": {"kind": "Defect", "message": "replitree could not do this: KeyError('other')"}}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    source, target = os.pipe()
    yield source, target
    os.close(source)


def test_lines_that_come_together_are_all_there_before_it_is_idle(pipe: tuple[int, int]) -> None:
    source, target = pipe
    lines = lines_until_idle(source, 0.01, lambda: False)
    os.write(target, b"one\ntwo\nthr")
    assert [next(lines), next(lines)] == [b"one", b"two"]
    os.write(target, b"ee\n")
    assert next(lines) == b"three"
    assert list(lines) == [], "no line comes any more"
    os.close(target)


def test_a_request_that_waits_for_its_answer_keeps_the_process(pipe: tuple[int, int]) -> None:
    source, target = pipe
    looks = iter([True, True, False])
    assert list(lines_until_idle(source, 0.01, lambda: next(looks))) == []
    assert list(looks) == []
    os.close(target)
    assert list(lines_until_idle(source, 60.0, lambda: True)) == [], "the end of the input is the end"
