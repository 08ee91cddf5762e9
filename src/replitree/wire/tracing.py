"""Spans of OpenTelemetry, from a client's insert to the replicas that execute its entry.

Off unless `enable` was called: then a span is the one object `OFF`, no header is sent, and nothing of OpenTelemetry is loaded.
The names are::

    replitree.insert        the client: from the call to the answer
      replitree.request     the server: one request; its parent came in the header ``traceparent``
        replitree.group     the inserts that share one commit; the others of them are links
          replitree.stage, replitree.commit, replitree.publish
    replitree.pull          a replica: entries of the log, read and queued
    replitree.execute       a replica: a batch of its queue
      replitree.fetch, replitree.publish, replitree.commit

Clients and servers share a trace.  The replicas that pull an entry begin traces of their own, because the log has no room for a
trace: their spans are found by ``replitree.table`` and ``replitree.index``, or ``replitree.parts``, which the group has, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from typing_extensions import override

from replitree.errors import BadInput
from replitree.wire.version import installed_version

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

LISTED_MAX = 20
"""Parts and indexes that a span names."""

NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
"""Modules of the extra ``otel``."""

HEADER = "traceparent"
Fact = str | int | float | bool | Sequence[str] | Sequence[int] | None
Kind = Literal["internal", "client", "server"]


class TracedSpan:
    """A span that is not recorded."""

    def attach(self) -> Self:
        """Make it the parent of the spans that this thread, or this task, begins until its end."""
        return self

    def detach(self) -> None:
        """Let it be no parent here any longer; it goes on."""

    def note(self, **facts: Fact) -> None:
        """Add attributes ``replitree.…``; those that are None are left out."""

    def failed(self, error: BaseException) -> None:
        """Note why it failed."""

    def end(self, **facts: Fact) -> None:
        """End it, with more attributes."""

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.failed(error)
        self.end()


OFF = TracedSpan()


class _RecordedSpan(TracedSpan):
    """A span of OpenTelemetry."""

    def __init__(self, spans: _Spans, span: Span) -> None:
        self._spans = spans
        self._span = span
        self._token: object = None

    @override
    def attach(self) -> Self:
        self._token = self._spans.context.attach(self._spans.trace.set_span_in_context(self._span))
        return self

    @override
    def detach(self) -> None:
        if self._token is not None:
            self._spans.context.detach(self._token)
            self._token = None

    @override
    def note(self, **facts: Fact) -> None:
        for name, value in facts.items():
            if isinstance(value, str | int | float):
                self._span.set_attribute(f"replitree.{name}", value)
            elif value is not None:
                self._span.set_attribute(f"replitree.{name}", value[:LISTED_MAX])

    @override
    def failed(self, error: BaseException) -> None:
        # Its message may name values of rows; its kind does not.
        self._span.set_status(self._spans.trace.StatusCode.ERROR, type(error).__name__)

    @override
    def end(self, **facts: Fact) -> None:
        self.note(**facts)
        self.detach()
        self._span.end()


class _Spans:
    """What begins spans; made when tracing is enabled, so that nothing else loads OpenTelemetry."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.context = context
        self.trace = trace
        self.propagator = TraceContextTextMapPropagator()
        self.tracer = provider.get_tracer("replitree", installed_version())

    def begin(
        self, name: str, kind: Kind, parent: Context | None, links: Sequence[Context], start_ns: int | None
    ) -> TracedSpan:
        """Begin a span."""
        found = (self.trace.get_current_span(each).get_span_context() for each in links)
        span = self.tracer.start_span(
            name,
            parent,
            self.trace.SpanKind[kind.upper()],
            links=[self.trace.Link(each) for each in found if each.is_valid],
            start_time=start_ns,
        )
        return _RecordedSpan(self, span)


_spans: _Spans | None = None


def enable(provider: TracerProvider | None = None, *, service: str = "replitree", instance: str = "") -> None:
    """Record spans in this process from now on.

    Parameters
    ----------
    provider
        Where they go; by default the provider that the program has set, or else one that exports by OTLP over HTTP, as
        OpenTelemetry's variables say (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_SAMPLER`` and so on).
    service, instance
        The service's name and the name of this instance of it, where the provider is made here.

    Raises
    ------
    BadInput
        The packages of the extra ``otel`` are not installed.
    """
    global _spans  # noqa: PLW0603 - tracing is a switch of the process
    if provider is None and (why := why_not_traced()):
        raise BadInput(why)
    _spans = _Spans(provider or _provider(service, instance))


def why_not_traced() -> str:
    """Return why this Python can't record and export spans; empty: it can."""
    missing: list[str] = []
    for name in NEEDED:
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
    return f"traces need {' and '.join(missing)}: pip install 'replitree[otel]'" if missing else ""


def disable() -> None:
    """Record no spans any longer."""
    global _spans  # noqa: PLW0603 - as in `enable`
    _spans = None


def _provider(service: str, instance: str) -> TracerProvider:
    """Return the program's provider, or one that exports by OTLP."""
    from opentelemetry import trace

    known = trace.get_tracer_provider()
    if not isinstance(known, trace.ProxyTracerProvider):
        return known
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {"service.name": service, "service.instance.id": instance, "service.version": installed_version()}
    made = TracerProvider(resource=Resource.create({key: value for key, value in named.items() if value}))
    # Exports in a thread of its own; what it can't send in time it drops, and no insert waits for it.
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(made)
    return made


def is_on() -> bool:
    """Whether spans are recorded."""
    return _spans is not None


def begin(
    name: str,
    *,
    kind: Kind = "internal",
    parent: object = None,
    traceparent: str = "",
    links: Sequence[object] = (),
    start_ns: int | None = None,
) -> TracedSpan:
    """Begin a span, which the caller ends; as a context manager it is attached, and ends by itself.

    Parameters
    ----------
    name
        One of those above, without ``replitree.``.
    parent, traceparent
        What `current` returned where the parent was attached, or the header of a request; by default the attached span.
    links
        What `current` returned elsewhere: spans that this one works for, too.
    start_ns
        When it began, in nanoseconds since 1970; None: now.
    """
    spans = _spans
    if spans is None:
        return OFF
    context: Context | None = parent  # type: ignore[assignment]  # what `current` returned
    if traceparent:
        context = spans.propagator.extract({HEADER: traceparent})
    others: Sequence[Context] = links  # type: ignore[assignment]  # what `current` returned
    return spans.begin(f"replitree.{name}", kind, context, others, start_ns)


def current() -> object:
    """Return the attached span, for `begin` in another thread; None: tracing is off."""
    return None if _spans is None else _spans.context.get_current()


def is_inside() -> bool:
    """Whether a span is attached here, so that steps of it are worth spans."""
    return _spans is not None and _spans.trace.get_current_span().is_recording()


def note(**facts: Fact) -> None:
    """Add attributes to the attached span, if there is one."""
    if _spans is not None:
        _RecordedSpan(_spans, _spans.trace.get_current_span()).note(**facts)


def header() -> str:
    r"""Return the line of a request's head that names the attached span, with its end; empty: none is attached."""
    if _spans is None:
        return ""
    carrier: dict[str, str] = {}
    _spans.propagator.inject(carrier)
    return f"{HEADER}: {carrier[HEADER]}\r\n" if HEADER in carrier else ""


def traceparent_of(headers: Mapping[str, str]) -> str:
    """Return what a request says of its trace; empty when tracing is off."""
    return "" if _spans is None else headers.get(HEADER, "")


__all__ = [
    "OFF",
    "TracedSpan",
    "begin",
    "current",
    "disable",
    "enable",
    "header",
    "is_inside",
    "is_on",
    "note",
    "traceparent_of",
    "why_not_traced",
]
