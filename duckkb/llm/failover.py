"""A chat model of several providers: they are asked in order, until one answers."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from duckkb.errors import Unavailable, UsageError
from duckkb.messages import ChatEvent, ChatRequest
from duckkb.settings import ChatModelSettings

if TYPE_CHECKING:
    from threading import Event

_GOES_ON = frozenset({"timeout", "unreachable", "bad_answer", "no_key"})
_STATUSES = frozenset({401, 403, 404, 408, 429})
"""Statuses below 500 after which the next provider is asked.

Others, 400 and 422 above all, concern the request: the next provider would refuse it as well.
"""


class ChatProvider(Protocol):
    """A place where a model is served.

    Its faults are `errors.Unavailable` (E_MODEL) with one word in `details["reason"]`: `timeout`,
    `unreachable`, `http_STATUS`, `bad_answer`, `no_key` or `ignored`.
    """

    @property
    def name(self) -> str:
        """The name that identifies the provider in errors; it holds no secret."""
        ...

    def stream(self, request: ChatRequest, cancel: "Event | None" = None) -> Iterator[ChatEvent]: ...


class Failover:
    """A chat model (`ports.ChatModel`) of several providers.

    The next provider is asked where one cannot be reached, is late, gives an unusable answer, or answers 401,
    403, 404, 408, 429 or 5xx; never after a piece of an answer has been passed on. `refusal` is raised instead
    of asking any.
    """

    def __init__(
        self, settings: ChatModelSettings, providers: Sequence[ChatProvider], refusal: Unavailable | None = None
    ) -> None:
        self._settings, self._providers, self._refusal = settings, providers, refusal

    @property
    def settings(self) -> ChatModelSettings:
        return self._settings

    def stream(self, request: ChatRequest, cancel: "Event | None" = None) -> Iterator[ChatEvent]:
        refuse_what_it_cannot(self._settings, request)
        if self._refusal:
            raise self._refusal
        return self._answer(request, cancel)

    def _answer(self, request: ChatRequest, cancel: "Event | None") -> Iterator[ChatEvent]:
        failures: list[tuple[str, Unavailable]] = []
        for provider in self._providers:
            is_begun = False
            try:
                for event in provider.stream(request, cancel):
                    is_begun = True
                    yield event
                return
            except Unavailable as problem:
                failures.append((provider.name, problem))
                if is_begun or not _should_fail_over(problem):
                    problem.details = {**problem.details, "provider": provider.name, "tries": _list_tries(failures)}
                    raise
        raise self._combine_failures(failures)

    def _combine_failures(self, failures: Sequence[tuple[str, Unavailable]]) -> Unavailable:
        """Return one error that lists the error of each provider."""
        summary = "; ".join(f"{name}: {problem.message}" for name, problem in failures)
        remedy = next((problem.suggestion for _, problem in failures if problem.suggestion), "")
        message = f"No provider of the chat model {self._settings.name} answered. {summary}"
        reason = {"reason": "all_failed", "tries": _list_tries(failures)}
        return Unavailable(message, code="E_MODEL", suggestion=remedy, details=reason)


def refuse_what_it_cannot(model: ChatModelSettings, request: ChatRequest) -> None:
    """Raise `errors.UsageError` (E_MODEL_CANNOT) where a request needs a feature that the registry denies the
    model.
    """
    abilities = {
        "JSON": (request.response_format == "json", model.json_mode, "json_mode"),
        "calls of tools": (bool(request.tools), model.tools, "tools"),
        "reasoning": (request.reasoning_effort is not None, model.reasoning != "none", "reasoning"),
    }
    for ability, (is_necessary, can, key) in abilities.items():
        if is_necessary and not can:
            remedy = f"use another model, or leave it out; global.models.{model.name}.{key} lists its features"
            raise UsageError(f"The chat model {model.name} has no {ability}.", "E_MODEL_CANNOT", remedy)


def _should_fail_over(problem: Unavailable) -> bool:
    reason = str(problem.details.get("reason"))
    status = int(reason.removeprefix("http_")) if reason.startswith("http_") else 0
    return reason in _GOES_ON or status in _STATUSES or status >= 500


def _list_tries(failures: Sequence[tuple[str, Unavailable]]) -> list[dict[str, str]]:
    return [
        {"provider": name, "reason": str(problem.details.get("reason", problem.code)), "message": problem.message}
        for name, problem in failures
    ]
