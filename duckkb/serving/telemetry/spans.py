"""A request and the steps of its answer as spans, by the API of OpenTelemetry alone.

Nothing happens unless the serving process has set up an SDK.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from duckkb.serving.telemetry.noted import Noted

_TRACER = trace.get_tracer("duckkb", version("duckkb"))
_PARENTS = TraceContextTextMapPropagator()


@contextmanager
def request_span(headers: Mapping[str, str], method: str, noted: Noted) -> Iterator[trace.Span]:
    """Open the span of a request, as a child of its `traceparent`; the steps of its answer become its children."""
    about = {"http.request.method": method}
    parent = _PARENTS.extract(dict(headers))
    span = _TRACER.start_span(method, parent, trace.SpanKind.SERVER, about)
    noted.is_traced = span.is_recording()
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span
    finally:
        _trace_steps(span, noted)
        span.end()


def trace_id(span: trace.Span) -> str:
    """Return 32 hex digits, for log lines; empty where nothing is traced."""
    context = span.get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


def describe(span: trace.Span, method: str, noted: Noted, status: int) -> None:
    """Set the attributes of a span when its request is answered, with the route where the path has parameters."""
    if not span.is_recording():
        return
    span.update_name(f"{method} {noted.route}")
    span.set_attribute("http.route", noted.route)
    span.set_attribute("http.response.status_code", status)
    if noted.action:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", noted.action)
    if noted.hits is not None:
        span.set_attribute("duckkb.hits", noted.hits)
    if noted.degraded:
        span.set_attribute("duckkb.degraded", list(noted.degraded))
    if noted.code:
        span.set_attribute("error.type", noted.code)
    if status >= 500:
        span.set_status(trace.StatusCode.ERROR)


def _trace_steps(span: trace.Span, notes: Noted) -> None:
    within = trace.set_span_in_context(span)
    for name, begin_ns, end_ns in notes.steps:
        _TRACER.start_span(name, within, start_time=begin_ns).end(end_ns)
