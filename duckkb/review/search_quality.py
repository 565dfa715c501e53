"""The quality of each lane's answers to the judged questions: at present, and at some commits.

Results are noted beside the lines, under everything that they depend on: nothing is asked twice.
"""

import json
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine import text_vectors
from duckkb.engine.base import Base
from duckkb.engine.index_status import ground_of
from duckkb.review import impact_report
from duckkb.review.impact_report import JudgedQuestion, RankedAnswer
from duckkb.storage.git_facts import History, Sample
from duckkb.types import request_context
from duckkb.types.errors import DuckkbError
from duckkb.types.queries import Mode

LANES: tuple[Mode, ...] = ("match", "similar", "hybrid")
K, DEEPEST = 10, 50
"""The number of results that count, and the depth to which a judged record is searched."""
_FORMAT = 1
_KEPT = 500
"""Commits whose results stay noted."""
NOTE = "quality"


class LaneAnswer(Struct, frozen=True):
    """A lane's answer to a question: the `ranks` of the judged records among the first `DEEPEST`, and the nDCG.

    Ranks begin at 1, None beyond. The nDCG is of the first `K`, None where the lane cannot be asked, for which
    `problem` is the reason. `is_whole`: nothing was missing that would change it.
    """

    ndcg: float | None
    ranks: Mapping[str, int | None]
    problem: str = ""
    is_whole: bool = True


Row = Mapping[str, LaneAnswer]
"""The answers to one question, by lane."""


class Evaluated(Struct, frozen=True):
    """A commit with the mean nDCG of each lane, None where no question can be asked; `problem` says why."""

    sample: Sample
    ndcg: Mapping[str, float | None]
    problem: str = ""


def now(base: Base, seconds: float) -> list[tuple[JudgedQuestion, Row | None]]:
    """Ask the judged questions of each lane of the present base; None where time ran out.

    At least one question is asked in each call.
    """
    until, is_new = time.monotonic() + seconds, False
    judged_questions = questions(base)
    rows_by_key: dict[str, Row] = {}
    for name in dict.fromkeys(item.type for item in judged_questions):
        note, ground = f"{NOTE}/{name}", _compute_ground(base, name)
        rows = _load_rows(base, note, ground)
        new: dict[str, Row] = {}
        for question in (item for item in judged_questions if item.type == name and _compute_key(item) not in rows):
            if (is_new and time.monotonic() > until) or request_context.is_over():
                break
            new[_compute_key(question)], is_new = _ask_lanes(base, question), True
        rows_by_key |= rows | new
        if new:
            _note_rows(base, note, ground, rows | new)
    return [(item, rows_by_key.get(_compute_key(item))) for item in judged_questions]


def evaluate_history(base: Base, history: History, most: int, seconds: float) -> tuple[tuple[Evaluated, ...], int]:
    """Return the evaluated commits of a history, with up to `most` more, and the number left.

    New commits are evaluated newest first, and begun within `seconds`. Today's questions are asked of each
    commit with its own configuration: records that it lacks are not found.
    """
    judged_questions, until = questions(base), time.monotonic() + seconds
    ground = _digest([version("duckkb"), K, *map(_compute_key, judged_questions)])
    known_commits = _load_commits(base, ground)
    evaluations: dict[str, Evaluated] = {}
    start_count = 0
    for sample in reversed(history.samples):
        commit = sample.by.commit
        if commit in known_commits:
            evaluations[commit] = Evaluated(sample, known_commits[commit])
        elif start_count < most and (not start_count or time.monotonic() < until) and not request_context.is_over():
            start_count += 1
            evaluations[commit], is_whole = _evaluate_commit(base, sample, judged_questions)
            if is_whole:
                known_commits[commit] = evaluations[commit].ndcg
                recent_commits = dict(islice(reversed(known_commits.items()), _KEPT))
                base.notes.keep(NOTE, {"format": _FORMAT, "ground": ground, "commits": recent_commits})
    return tuple(reversed(evaluations.values())), len(history.samples) - len(evaluations)


def questions(base: Base) -> list[JudgedQuestion]:
    """Return the judged questions about types of the base, each once."""
    known_questions = [
        question
        for question in impact_report.read(base.wiring.questions)
        if base.ontology.find(question.type) is not None
    ]
    return list({_compute_key(question): question for question in known_questions}.values())


def means(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return the mean nDCG of each lane over the questions that it can be asked."""
    values_by_lane = {lane: [value for row in rows if (value := row[lane].ndcg) is not None] for lane in LANES}
    return {lane: sum(values) / len(values) if values else None for lane, values in values_by_lane.items()}


def _evaluate_commit(base: Base, sample: Sample, judged_questions: Sequence[JudgedQuestion]) -> tuple[Evaluated, bool]:
    """Evaluate a commit; return also whether the result is final.

    Missing vectors are made, however long that takes.
    """
    nothing: dict[str, float | None] = dict.fromkeys(LANES)
    try:
        past = base.wiring.beside(sample.by.commit)
    except DuckkbError as problem:  # its configuration does not load, or git lacks an object
        return Evaluated(sample, nothing, problem.message), False
    try:
        type_names = {item.type for item in judged_questions}
        impact_report.fill(past, [kind for kind in past.ontology if kind.name in type_names])
        rows = [_ask_lanes(past, item, K) for item in judged_questions]
    finally:
        past.close()
    problems = [item.problem for row in rows for item in row.values() if not item.is_whole]
    return Evaluated(sample, means(rows), problems[0] if problems else ""), not problems


def _ask_lanes(base: Base, question: JudgedQuestion, depth: int = DEEPEST) -> Row:
    return {lane: _ask_lane(base, replace(question, mode=lane), depth) for lane in LANES}


def _ask_lane(base: Base, question: JudgedQuestion, depth: int) -> LaneAnswer:
    """Ask one lane one question; a record or a type that is absent is not found."""
    ranks: dict[str, int | None] = dict.fromkeys(question.expected)
    kind = base.ontology.find(question.type)
    if kind is None:
        return LaneAnswer(0.0, ranks)
    if question.mode == "hybrid" and not (kind.full_text and kind.has_text_vectors):
        return LaneAnswer(None, ranks, f"{kind.name} is not searched by words and by meaning")
    answer: RankedAnswer = impact_report.answer(base, kind, question, depth)
    if answer.problem or answer.degraded:
        return LaneAnswer(None, ranks, answer.problem or answer.degraded, is_whole=not answer.degraded)
    ranks = {name: answer.rank(name) for name in question.expected}
    return LaneAnswer(impact_report.ndcg(answer.ranked, question.expected, K), ranks)


def _compute_key(question: JudgedQuestion) -> str:
    """Return a digest of what a question asks of each lane."""
    return _digest([question.text, question.type, question.where, sorted(question.expected.items())])


def _digest(value: Any) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()[:32]


def _compute_ground(base: Base, name: str) -> str:
    kind = base.ontology.find(name)
    assert kind is not None, "it has questions"
    return _digest(
        [version("duckkb"), K, DEEPEST, ground_of(base, kind), repr(kind), repr(kind.settings(base.settings))]
    )


def _note_rows(base: Base, note: str, ground: str, rows: Mapping[str, Row]) -> None:
    """Store the final results: nothing while vectors are missing."""
    kind = base.ontology.find(note.removeprefix(f"{NOTE}/"))
    assert kind is not None, "it has questions"
    if base.wiring.published or (kind.has_text_vectors and text_vectors.count_missing_vectors(base, [kind])):
        return
    whole = {key: row for key, row in rows.items() if all(answer.is_whole for answer in row.values())}
    serialized_rows = {
        key: {lane: _serialize_answer(answer) for lane, answer in row.items()} for key, row in whole.items()
    }
    base.whole.notes.keep(note, {"format": _FORMAT, "ground": ground, "rows": serialized_rows})


def _serialize_answer(answer: LaneAnswer) -> list[Any]:
    return [answer.ndcg, answer.ranks, answer.problem]


def _load_rows(base: Base, note: str, ground: str) -> dict[str, Row]:
    if base.wiring.published:  # its parts do not tell whether they changed
        return {}
    stored_note = base.whole.notes.note(note)
    try:
        if stored_note["format"] != _FORMAT or stored_note["ground"] != ground:
            return {}
        return {key: {lane: LaneAnswer(*row[lane]) for lane in LANES} for key, row in stored_note["rows"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):  # a foreign or damaged note
        return {}


def _load_commits(base: Base, ground: str) -> dict[str, Mapping[str, float | None]]:
    stored_note = base.notes.note(NOTE)
    try:
        if stored_note["format"] != _FORMAT or stored_note["ground"] != ground:
            return {}
        return {
            str(commit): {lane: values[lane] for lane in LANES} for commit, values in stored_note["commits"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
