"""Notes about one request on its way through a server: the code that answers fills them in; the log and the spans
read them.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from duckkb.actions.registry.answers import notices_of
from duckkb.actions.registry.offered import ACTIONS
from duckkb.caller import Caller
from duckkb.errors import DuckkbError
from duckkb.steps import Step, record_steps

NOTED = "duckkb.noted"
"""Key in the scope of an HTTP request for its notes."""
Run = Callable[[str, Mapping[str, Any], Caller], dict[str, Any]]
"""`Served.run`, or that of a pool."""


class Noted(Struct):
    """The notes about one request.

    `code` is that of its error, `hits` the number of its results; `arguments` are those of a reading action,
    which no label and no span holds; `address` is that of the client; `steps` are kept where `is_traced`.
    """

    route: str = ""
    request_id: str = ""
    tenant: str = ""
    action: str = ""
    arguments: Mapping[str, Any] = {}
    hits: int | None = None
    degraded: tuple[str, ...] = ()
    code: str = ""
    address: str = ""
    is_traced: bool = False
    steps: list[Step] = []

    @contextmanager
    def record_action(self, name: str, given: Mapping[str, Any], caller: Caller) -> Iterator[None]:
        """Note an action that the block asks for, and the error that it raises."""
        self.action, self.tenant = name, caller.tenant
        self.arguments = {} if name not in ACTIONS or ACTIONS[name].writes else given
        try:
            yield
        except Exception as problem:
            self.code = problem.code if isinstance(problem, DuckkbError) else "E_INTERNAL"
            raise

    def trace_run(self, run: Run, name: str, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Run an action in the present thread, and trace its steps; raises what it raises."""
        if not self.is_traced:
            return run(name, given, caller)
        with record_steps() as steps:
            try:
                return run(name, given, caller)
            finally:
                self.steps += steps

    def record_answer(self, answer: Mapping[str, Any]) -> None:
        """Note the answer."""
        of_many = {} if "_type" in answer else answer
        results = of_many.get("results", of_many.get("rows", of_many.get("records")))
        self.hits = len(results) if isinstance(results, list) else None
        self.degraded = tuple(list_reasons(answer))


def get_notes(scope: MutableMapping[str, Any] | None) -> Noted:
    """Return the notes about the request with this scope; fresh notes where there are none."""
    notes = None if scope is None else scope.get(NOTED)
    return notes if isinstance(notes, Noted) else Noted()


def list_reasons(answer: Mapping[str, Any]) -> list[str]:
    """Return what an answer went without and why, a word each, as `reason` of notices."""
    notices = [notice for notice in notices_of(answer) if isinstance(notice, Mapping)]
    reasons = (str(notice.get("reason") or "unknown") for notice in notices if notice.get("code") == "W_DEGRADED")
    return list(dict.fromkeys(reasons))
