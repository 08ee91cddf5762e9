"""Answers that are lost on their way to a client, after a replica has carried the requests out."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any

import pytest

from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.errors import OutcomeUnknown, ReplicaUnavailable
from tests.waiting import wait_for

EVERY = 1_000
REFUSALS = (b'"participant_gone"', b'"map_changed"')


def lose_answers(monkeypatch: pytest.MonkeyPatch, route: str, count: int = 1) -> list[str]:
    """Lose the first `count` answers to requests whose path contains `route`; return the paths of those that were lost.

    A refusal is heard: a busy replica may refuse a request at first, and carry out the next one.
    """
    request, lost = HttpClient.request, list[str]()

    def request_and_lose(client: HttpClient, address: str, method: str, path: str, *more: Any, **options: Any) -> Any:
        answer = request(client, address, method, path, *more, **options)
        is_refused = answer.status != http.client.OK or any(refusal in answer.body for refusal in REFUSALS)
        if route in path and len(lost) < count and not is_refused:
            lost.append(path)
            raise AnswerLost(f"{address} did not answer")
        return answer

    monkeypatch.setattr(HttpClient, "request", request_and_lose)
    return lost


def until_unknown(call: Callable[[], object], lost: list[str]) -> OutcomeUnknown:
    """Make a call with a short time limit until it comes so far in time that an answer of it is lost; return its error."""

    def unknown() -> OutcomeUnknown | None:
        try:
            call()
        except OutcomeUnknown as error:
            return error
        except ReplicaUnavailable:
            assert not lost, "what may have been carried out is unknown"
        return None

    return wait_for(unknown, "an answer is lost")
