"""Until when somebody waits for a call: what may take long heeds it, and statements go side by side."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duckkb import app
from duckkb.operations.action import TIMES
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.dispatch import accept_call
from duckkb.sql.confined import Confined
from duckkb.sql.sql_process import Engines
from duckkb.types import request_context
from duckkb.types.errors import Unavailable
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, make_base

_OF_TIME = re.compile(r"time(?!s\b)|second|minute|hour|_m?s$|wait|until|patience", re.IGNORECASE)
_TEN = f"(VALUES {', '.join(f'({n})' for n in range(10))})"
_NEVER_ENDS = f"SELECT sum(a.n % 7) FROM {', '.join(f'{_TEN} {letter}(n)' for letter in 'abcdefghijkl')}"
_LIMIT_S = 0.25


def test_no_parameter_that_is_a_time_goes_beyond_what_a_call_has() -> None:
    looked_at = set()
    for action in ACTIONS.values():
        rules = action.input["properties"]
        numbers = {name: rule for name, rule in rules.items() if rule.get("type") in ("integer", "number")}
        times = {name for name, rule in numbers.items() if _OF_TIME.search(f"{name} {rule['description']}")}
        assert times <= TIMES.keys(), f"{action.name}: is each of {times - TIMES.keys()} a time?"
        values = {"array": [{}], "string": "x", "object": {}}
        needed = {name: values[rules[name]["type"]] for name in action.input["required"] if "type" in rules[name]}
        for name in times & {"timeout", *numbers}:
            given = {**needed, name: rules[name].get("maximum", 3_600_000)}
            with request_context.bound_block(_LIMIT_S, ""):
                for arguments in (given, needed):
                    _, shortened = accept_call(action.name, arguments, Caller(role="admin"))
                    assert shortened.get(name, 0) <= _LIMIT_S * TIMES[name], (action.name, name, arguments)
            looked_at.add(action.name)
    assert {"sql", "growth", "quality", "query"} <= looked_at


def test_a_statement_ends_when_nobody_waits_for_it_any_more_and_the_next_one_is_answered(tmp_path: Path) -> None:
    with app.open(make_base(tmp_path / "kb", NOTES)) as kb, ThreadPoolExecutor(3) as threads:
        calls = [request_context.Deadline() for _ in range(3)]

        def ask(call: request_context.Deadline) -> None:
            with request_context.apply_deadline(call):
                kb.run("sql", {"statement": _NEVER_ENDS, "timeout": 3600})

        asked = [threads.submit(ask, call) for call in calls]
        for call in calls:  # two that run, or are about to, and one that waits for them
            call.cancel()
        for each in asked:
            with pytest.raises(Unavailable) as stopped:
                each.result()
            assert stopped.value.code in ("E_TIMEOUT", "E_LIMIT")
        assert kb.run("sql", {"statement": "SELECT 1 AS n"})["rows"] == [{"n": 1}]


def test_a_statement_in_its_process_ends_with_its_call(tmp_path: Path) -> None:
    """Also one that has begun: the process is killed, and the next statement has another."""
    with app.open(make_base(tmp_path / "kb", NOTES)) as kb, ThreadPoolExecutor(1) as threads:
        assert kb.run("sql", {"statement": "SELECT 1 AS n"})["rows"] == [{"n": 1}]
        call, asked = request_context.Deadline(), threading.Event()

        def ask() -> None:
            with request_context.apply_deadline(call):
                asked.set()
                kb.run("sql", {"statement": _NEVER_ENDS, "timeout": 3600})

        stopped = threads.submit(ask)
        asked.wait()
        call.shorten(1)  # by itself
        with pytest.raises(Unavailable) as why:
            stopped.result()
        assert why.value.code in ("E_LIMIT", "E_TIMEOUT")
        assert kb.run("sql", {"statement": "SELECT 1 AS n"})["rows"] == [{"n": 1}]


def test_engines_are_asked_side_by_side_and_who_had_none_is_next() -> None:
    engines, order = Engines(Confined(), Confined()), list[str]()
    both, ends = threading.Barrier(3), [threading.Event(), threading.Event()]

    def hold(end: threading.Event) -> None:
        with request_context.bound_block(None, "flood"), engines.turn():
            both.wait()
            end.wait()

    def ask(owner: str) -> None:
        with request_context.bound_block(None, owner), engines.turn():
            order.append(owner)

    with ThreadPoolExecutor(8) as threads:
        held = [threads.submit(hold, end) for end in ends]
        both.wait()
        waiting = []
        for owner in ("flood", "flood", "other"):
            before = len(engines._waiting)
            waiting.append(threads.submit(ask, owner))
            while len(engines._waiting) == before:
                pass
        ends[0].set()
        for each in waiting:
            each.result()
        ends[1].set()
        for each in held:
            each.result()
    assert order == ["other", "flood", "flood"]


def test_who_waits_for_an_engine_goes_when_the_call_is_cancelled() -> None:
    engines, call = Engines(Confined()), request_context.Deadline()

    def ask() -> None:
        with request_context.apply_deadline(call), engines.turn():
            raise AssertionError("there is none")

    with ThreadPoolExecutor(1) as threads, engines.turn():
        asked = threads.submit(ask)
        call.cancel()
        with pytest.raises(Unavailable, match="was stopped"):
            asked.result()
