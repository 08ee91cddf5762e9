"""Spans from a client's insert to the replicas that execute its entry, in OpenTelemetry's exporter in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from replitree.errors import BadInput
from replitree.wire import tracing
from tests.replica.inprocess import InProcessCluster, rows, wait_for


class Spans:
    """What was recorded."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str, **facts: object) -> list[ReadableSpan]:
        """The spans of a name that have these attributes."""
        wanted = {f"replitree.{key}": value for key, value in facts.items()}
        return [
            span
            for span in self._exporter.get_finished_spans()
            if span.name == f"replitree.{name}"
            and all((span.attributes or {}).get(key) == value for key, value in wanted.items())
        ]

    def one(self, name: str, **facts: object) -> ReadableSpan:
        """The only one of these, when it has ended."""
        (span,) = wait_for(lambda: self.named(name, **facts), f"a span {name} {facts}")
        assert isinstance(span, ReadableSpan)
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.enable(provider)
    yield Spans(exporter)
    tracing.disable()
    provider.shutdown()


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def facts(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_an_insert_is_one_trace_from_the_client_to_the_commit(cluster: InProcessCluster, spans: Spans) -> None:
    with cluster.connect() as connection:
        done = connection.table("t").insert(rows(0), token="first")
    insert = spans.one("insert", token="first")
    request = spans.one("request", token="first")
    group = spans.one("group")
    assert parent(insert) is None
    assert parent(request) == ids(insert)
    assert parent(group) == ids(request)
    for step in ("stage", "commit"):
        steps = [span for span in spans.named(step) if parent(span) == ids(group)]
        assert steps, step
    assert facts(insert)["replitree.outcome"] == "inserted"
    assert facts(insert)["replitree.index"] == facts(group)["replitree.index"] == done.index
    assert facts(request)["replitree.outcome"] == "inserted"


def test_the_entry_is_found_in_the_traces_of_the_other_replica(cluster: InProcessCluster, spans: Spans) -> None:
    cluster.nodes[0].insert(rows(0), token="first")
    cluster.wait_equal(list(range(10)))
    (inserter,) = {facts(span)["replitree.replica"] for span in spans.named("group")}
    group = spans.one("group")
    other = "r2" if inserter == "r1" else "r1"
    index = facts(group)["replitree.index"]
    assert isinstance(index, int)
    for step in ("pull", "execute"):
        spans.one(step, replica=other, indexes=(index,))
    execute = spans.one("execute", replica=other)
    parts = facts(execute)["replitree.parts"]
    fetch = [span for span in spans.named("fetch", parts=parts) if parent(span) == ids(execute)]
    assert fetch
    assert facts(execute)["replitree.executed"] == (index,)


def test_an_insert_without_a_header_begins_a_trace_at_the_server(cluster: InProcessCluster, spans: Spans) -> None:
    cluster.nodes[0].insert(rows(0), token="first")
    assert parent(spans.one("request", token="first")) is None


@pytest.mark.parametrize("header", ["nonsense", "00-0-0-01", "x" * 4000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_header_that_is_none_does_no_harm(cluster: InProcessCluster, spans: Spans, header: str) -> None:
    status, _ = cluster.nodes[0].request("GET", "/v1/tables/t/snapshot", headers={"traceparent": header})
    assert status == 200
    assert parent(spans.one("request", action="snapshot")) is None


def test_a_request_that_fails_is_marked_without_its_message(cluster: InProcessCluster, spans: Spans) -> None:
    status, _ = cluster.nodes[0].request("POST", "/v1/tables/t/insert", b"no rows at all")
    assert status == 400
    request = spans.one("request", action="insert")
    assert not request.status.is_ok
    assert "no rows" not in request.to_json()


def test_a_general_request_is_a_span_whose_parent_is_its_client(cluster: InProcessCluster, spans: Spans) -> None:
    with tracing.begin("insert"):
        name, _, value = tracing.header().strip().partition(": ")
        status, _ = cluster.nodes[0].request("GET", "/v1/tables/t/status", headers={name: value})
    assert status == 200
    assert parent(spans.one("request", action="status", table="t")) == ids(spans.one("insert"))


def test_nothing_is_recorded_and_no_header_is_sent_when_it_is_off(cluster: InProcessCluster) -> None:
    assert tracing.begin("insert") is tracing.OFF
    assert (tracing.header(), tracing.current(), tracing.is_inside()) == ("", None, False)
    with tracing.begin("insert") as span:
        span.note(table="t")
        assert tracing.header() == ""


def test_the_product_loads_nothing_of_opentelemetry_by_itself() -> None:
    program = "import sys, replitree.client.connection, replitree.replica.server; print('opentelemetry' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "False"


def test_a_python_without_the_extra_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "NEEDED", ("no_such_module.trace",))
    with pytest.raises(BadInput, match=r"no_such_module.trace: pip install 'replitree\[otel\]'"):
        tracing.enable()
    assert not tracing.is_on()
