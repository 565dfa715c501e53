"""The effect of a change on search: the judged questions are asked on both sides and compared rank by rank.

An impact report as text, markdown or a JSON object. In markdown, data stands in code spans alone."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from duckkb.engine import find, rank_fusion, text_vectors
from duckkb.engine.base import Base
from duckkb.engine.rank_fusion import Intent
from duckkb.ontology.model import RecordType
from duckkb.review.diff_model import Label
from duckkb.review.report_formats import ReportSection, fit_sections, judge_findings
from duckkb.review.report_markup import cut, escape_line, many, span
from duckkb.types import request_context
from duckkb.types.errors import DuckkbError, Finding, NotFound, UsageError
from duckkb.types.records import identity_text

MEASURES = ("ndcg", "recall", "lost", "faded")
"""The measures by which a change can fail."""
FADED = "judged records that lost half of their words' score"
_KEPT = 0.75


class JudgedQuestion(Struct, frozen=True):
    """A judged question; `expected` has a grade by identity, as the command line writes identities."""

    text: str
    type: str
    expected: Mapping[str, int]
    mode: Any = None
    where: str | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.text, self.type, self.mode or "", self.where or ""


class RankedAnswer(Struct, frozen=True):
    """The first identities that a side gives to a question, best first.

    `problem` says why there are none, `degraded` what the answer lacked. `words` has for each judged record
    among them the question's words that it contains, each with its share of the lexical score.
    """

    ranked: tuple[str, ...] = ()
    problem: str = ""
    degraded: str = ""
    words: Mapping[str, Mapping[str, float]] = {}

    def rank(self, identity: str) -> int | None:
        """Return the rank of an identity from 1; None beyond the ranks asked for."""
        return self.ranked.index(identity) + 1 if identity in self.ranked else None


class RankMove(Struct, frozen=True):
    """A judged record whose rank differs; None is beyond the first k."""

    identity: str
    grade: int
    before: int | None
    after: int | None


class Fade(Struct, frozen=True):
    """A judged record that is still found, but with a lower score.

    It has the question's words that the record lost, and its lexical score before and after.
    """

    identity: str
    grade: int
    words: tuple[str, ...]
    before: float
    after: float


class QuestionRow(Struct, frozen=True):
    """A question on both sides. `before` is None where the older side cannot be asked it.

    `moves` are judged records; `entered` and `left` are all records that entered or left the first k.
    """

    question: JudgedQuestion
    before: RankedAnswer | None
    after: RankedAnswer
    k: int

    @property
    def ndcg(self) -> tuple[float | None, float]:
        return self._measure_both(ndcg)

    @property
    def recall(self) -> tuple[float | None, float]:
        return self._measure_both(recall)

    def _measure_both(self, measure: Any) -> tuple[float | None, float]:
        grades = self.question.expected
        before = None if self.before is None else measure(self.before.ranked, grades, self.k)
        return before, measure(self.after.ranked, grades, self.k)

    @property
    def moves(self) -> list[RankMove]:
        if self.before is None:
            return []
        grades = self.question.expected.items()
        sides = (RankMove(name, grade, self.before.rank(name), self.after.rank(name)) for name, grade in grades)
        return [move for move in sides if move.before != move.after]

    @property
    def lost(self) -> list[str]:
        """The judged records (of a grade above 0) that were among the first k and are not any more."""
        return [move.identity for move in self.moves if move.grade and move.before and move.after is None]

    @property
    def faded(self) -> list[Fade]:
        """The judged records (of a grade above 0) on both sides that lost words, or a quarter of their lexical
        score.

        Their places may then hang on next to nothing.
        """
        fades = []
        old_words = self.before.words if self.before else {}
        for name, old in old_words.items():
            new = self.after.words.get(name)
            if new is None:
                continue
            lost_words = tuple(sorted(old.keys() - new.keys(), key=lambda word: (-old[word], word)))
            before, after = sum(old.values()), sum(new.values())
            if lost_words or after < _KEPT * before:
                fades.append(Fade(name, self.question.expected[name], lost_words, before, after))
        return fades

    @property
    def entered(self) -> list[str]:
        old_ranking = self.before.ranked if self.before else self.after.ranked
        return [name for name in self.after.ranked if name not in old_ranking]

    @property
    def left(self) -> list[str]:
        return [name for name in (self.before.ranked if self.before else ()) if name not in self.after.ranked]

    @property
    def is_changed(self) -> bool:
        before, after = self.before, self.after
        if before is None or self.faded:
            return True
        return (before.ranked, before.problem, before.degraded) != (after.ranked, after.problem, after.degraded)

    @property
    def is_judged_otherwise(self) -> bool:
        """Return whether judged records moved or faded, or whether the sides differ in a problem or in what they
        lacked.
        """
        before = self.before
        is_alike = before is not None and (before.problem, before.degraded) == (self.after.problem, self.after.degraded)
        return bool(self.moves or self.faded) or not is_alike


class ImpactReport(Struct, frozen=True):
    """The judged questions of both sides, asked of both.

    `removed` are questions of `base` that `head` lacks or judges more mildly, which `findings` report (E_GUARD;
    W_GUARD where that was allowed, and the questions of `head` count alone).
    `limits` are a drop of a mean, or a number of judged records, from which on a change fails; `prefix` is the
    folder of the base inside its repository.
    """

    base: Label
    head: Label
    k: int
    rows: tuple[QuestionRow, ...] = ()
    removed: tuple[JudgedQuestion, ...] = ()
    limits: Mapping[str, float] = {}
    findings: tuple[Finding, ...] = ()
    prefix: str = ""

    @property
    def errors(self) -> int:
        return sum(finding.is_error for finding in self.findings)

    @property
    def compared(self) -> list[QuestionRow]:
        """The questions that both sides were asked."""
        return [row for row in self.rows if row.before is not None]

    def mean(self, name: str) -> tuple[float | None, float | None]:
        """Return the mean of `ndcg` or `recall` before and after, over the questions that both sides were asked."""
        pairs = [getattr(row, name) for row in self.compared]
        before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True)) if pairs else (None, None)
        return before, after

    @property
    def lost(self) -> int:
        return sum(len(row.lost) for row in self.rows)

    @property
    def faded(self) -> int:
        """The number of records that lost half of their lexical score or more; rows also name smaller losses."""
        return sum(fade.after <= fade.before / 2 for row in self.rows for fade in row.faded)

    @property
    def crossed(self) -> tuple[str, ...]:
        """The limits that are reached, in words; 0 stands for any drop."""
        drops = ((limit, *self._drop(name)) for name, limit in self.limits.items())
        return tuple(
            f"{message} (limit {limit:g})" for limit, drop, message in drops if drop > 1e-9 and drop >= limit - 1e-9
        )

    def _drop(self, name: str) -> tuple[float, str]:
        if name == "lost":
            return self.lost, f"judged records lost from the first {self.k}: {self.lost}"
        if name == "faded":
            return self.faded, f"{FADED}: {self.faded}"
        before, after = self.mean(name)
        if before is None or after is None:
            return 0.0, ""
        return before - after, f"mean {name} fell by {before - after:.4f}, from {before:.4f} to {after:.4f}"

    @property
    def degraded(self) -> list[str]:
        answers = [answer for row in self.rows for answer in (row.before, row.after) if answer is not None]
        return list(dict.fromkeys(answer.degraded for answer in answers if answer.degraded))


def read(found: Sequence[Mapping[str, Any]]) -> list[JudgedQuestion]:
    """Read the judged questions of the ontology's files."""
    return [
        JudgedQuestion(
            question["question"],
            question["type"],
            _parse_grades(question["expected"]),
            question.get("mode"),
            question.get("where"),
        )
        for question in found
    ]


def milder(question: JudgedQuestion, others: Sequence[JudgedQuestion]) -> str:
    """Describe how a question asks less than its like among others; empty where it does not."""
    same = [candidate for candidate in others if candidate.key == question.key]
    if not same:
        return "is no longer asked"
    grades = {name: max(candidate.expected.get(name, 0) for candidate in same) for name in question.expected}
    lower = [name for name, grade in question.expected.items() if grades[name] < grade]
    return f"judges {', '.join(lower[:3])} lower" if lower else ""


def ask(base: Base, questions: Sequence[JudgedQuestion], k: int) -> list[RankedAnswer | None]:
    """Return the answers of one side, each the first `k` identities; None for a question about an unknown type.

    Missing vectors are made first, however long that takes. Raises `errors.Unavailable` (E_TIMEOUT) once nobody
    waits.
    """
    kinds = {item.type: kind for item in questions if (kind := base.ontology.find(item.type)) is not None}
    fill(base, kinds.values())
    answers: list[RankedAnswer | None] = []
    for question in questions:
        request_context.refuse_late()
        kind = kinds.get(question.type)
        answers.append(None if kind is None else answer(base, kind, question, k))
    return answers


def side_by_side(
    questions: Sequence[JudgedQuestion],
    before: Sequence[RankedAnswer | None],
    after: Sequence[RankedAnswer | None],
    k: int,
) -> tuple[QuestionRow, ...]:
    """Return each question with the answers of both sides."""
    return tuple(
        QuestionRow(question, old, new or RankedAnswer(problem=f"no type {question.type}"), k)
        for question, old, new in zip(questions, before, after, strict=True)
    )


def ndcg(ranked: Sequence[str], expected: Mapping[str, int], k: int) -> float:
    """Return the normalised discounted cumulative gain of the first k, by grade; 1.0 where nothing is expected.

    >>> ndcg(["b", "a"], {"a": 1}, 10)
    0.6309297535714575
    """
    best = sorted(expected.values(), reverse=True)[:k]
    ideal = _compute_gain(best)
    return _compute_gain([expected.get(name, 0) for name in ranked[:k]]) / ideal if ideal else 1.0


def recall(ranked: Sequence[str], expected: Mapping[str, int], k: int) -> float:
    """Return the share of records with a grade above 0 that are among the first k; 1.0 where there is none."""
    right = {name for name, grade in expected.items() if grade}
    return len(right & set(ranked[:k])) / len(right) if right else 1.0


def _parse_grades(grades: Any) -> dict[str, int]:
    """Parse grades by identity; a list grades each as 1, and a composite identity is an array."""
    if isinstance(grades, dict):
        return {_format_identity(name): grade for name, grade in grades.items()}
    return {_format_identity(item): 1 for item in grades}


def _format_identity(item: Any) -> str:
    """Return an identity as the command line prints it, even where a composite one was written with spaces."""
    if isinstance(item, str) and item.startswith("["):
        with suppress(ValueError):
            item = json.loads(item)
    if not isinstance(item, list):
        return str(item)
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))


def fill(base: Base, kinds: Iterable[RecordType]) -> None:
    """Make all vectors of these types, batch by batch, until none is missing or the model gives no more."""
    embeddable_kinds = [kind for kind in kinds if base.fingerprint(kind) is not None]
    previous_count = math.inf
    while embeddable_kinds:
        pending = text_vectors.count_missing_vectors(base, embeddable_kinds)
        if not pending or pending >= previous_count:
            return
        request_context.refuse_late()
        previous_count = pending
        text_vectors.compute_missing_vectors(base, embeddable_kinds)


def answer(base: Base, kind: RecordType, question: JudgedQuestion, k: int) -> RankedAnswer:
    """Return a base's answer to one question: the first `k` identities.

    Never raises for a fault of question or model.
    """
    intent = Intent(question.text, question.mode, question.where, k, kinds=(kind,))
    try:
        result = find.find(base, intent)
    except (UsageError, NotFound) as problem:
        return RankedAnswer(problem=problem.message)
    except DuckkbError as problem:
        return RankedAnswer(problem=problem.message, degraded=problem.message)
    message = next((notice.message for notice in result.notices if notice.code == "W_DEGRADED"), "")
    judged_ids = {
        _to_identity_text(hit.identity): hit.id
        for hit in result
        if question.expected.get(_to_identity_text(hit.identity))
    }
    words = (
        {}
        if result.mode == "similar"
        else {name: _score_words(base, kind, question, record_id) for name, record_id in judged_ids.items()}
    )
    return RankedAnswer(tuple(_to_identity_text(hit.identity) for hit in result), degraded=message, words=words)


def _score_words(base: Base, kind: RecordType, question: JudgedQuestion, number: int) -> dict[str, float]:
    """Return the question's words that a record contains, with their shares of its lexical score."""
    terms = base.lanes(kind).words.explain(rank_fusion.parse(question.text), number)["terms"] if kind.full_text else ()
    scores: dict[str, float] = {}
    for term in terms:
        if term["part"] != "character":
            scores[term["token"]] = scores.get(term["token"], 0.0) + term["score"]
    return scores


def _to_identity_text(identity: Any) -> str:
    return identity_text(identity if isinstance(identity, tuple) else (identity,))


def _compute_gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(grades))


_MOST_LINES = 20
_LONGEST = 200


def convert_report_to_object(report: ImpactReport) -> dict[str, Any]:
    """Return the whole report as plain data; `version` rises when a key changes its meaning."""
    means = {name: _round_sides(*report.mean(name)) for name in ("ndcg", "recall")}
    return {
        "version": 1,
        "outcome": "limits" if report.crossed else judge_findings(report.errors),
        "base": report.base.name,
        "head": report.head.name,
        "k": report.k,
        "questions": len(report.rows),
        "compared": len(report.compared),
        **means,
        "lost": report.lost,
        "faded": report.faded,
        "crossed": list(report.crossed),
        "degraded": report.degraded,
        "results": [_build_row(row) for row in report.rows],
        "removed": [_describe_question(question) for question in report.removed],
        "findings": [{name: value for name, value in asdict(finding).items() if value} for finding in report.findings],
    }


def iter_text(report: ImpactReport, budget: int) -> Iterator[str]:
    """Yield lines for a terminal."""
    yield f"{report.base.shown} -> {report.head.shown}: {many(len(report.rows), 'judged question')}, the first {report.k} results"
    yield from _format_means(report)
    for row in report.rows:
        if row.is_changed:
            yield ""
            yield f"{_format_text(row.question.type)}: {_format_text(row.question.text)}"
            yield from (f"  {text_line}" for text_line in _format_row(row, _format_text))
    yield from _format_notes(report, _format_text)


def iter_markdown(report: ImpactReport, budget: int) -> Iterator[str]:
    """Yield lines for a pull request's comment, of at most `budget` bytes.

    They have the means, the crossed limits and missing parts, then the questions whose answers differ, worst
    first. What exceeds the budget is counted.
    """
    head = [
        f"### Retrieval impact: {_format_span(report.base.shown)} → {_format_span(report.head.shown)}",
        "",
        "| | before | after |",
        "|---|---|---|",
    ]
    for name in ("ndcg", "recall"):
        before, after = report.mean(name)
        head.append(f"| mean {name}@{report.k} | {_format_number(before)} | {_format_number(after)} |")
    head += [f"| judged records lost | | {report.lost} |", f"| {FADED} | | {report.faded} |"]
    rooted_report = replace(report, findings=tuple(item.prefix_path(report.prefix) for item in report.findings))
    notes = [f"- {item}" for item in _format_notes(rooted_report, _format_span)]
    # Moves of records that are not judged come last: nobody has to act on them.
    changed_rows = sorted(
        (row for row in report.rows if row.is_changed),
        key=lambda row: (not row.is_judged_otherwise, *_measure_loss(row)),
    )
    blocks = ["\n".join(_format_question(row)) for row in changed_rows]
    fold = "\n<details open><summary>Questions whose answers changed</summary>\n"
    sections = [
        ReportSection("", lambda: notes, ["line"] * len(notes), 0.5),
        ReportSection(fold, lambda: blocks, [row.question.type for row in changed_rows], 0.5, "\n</details>\n"),
    ]
    yield fit_sections("\n".join(head) + "\n", sections, budget).rstrip("\n")


def _format_question(row: QuestionRow) -> Iterator[str]:
    yield f"- {_format_span(row.question.type)} {_format_span(row.question.text)}"
    lines = [f"  - {text_line}" for text_line in _format_row(row, _format_span)]
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"  - {len(lines) - _MOST_LINES} more"


def _format_row(row: QuestionRow, show: Any) -> Iterator[str]:
    if row.before is None:
        yield f"new: ndcg {_format_number(row.ndcg[1])}, recall {_format_number(row.recall[1])}"
    else:
        yield from _format_differences(row, row.before, show)
    if row.after.problem:
        yield f"no answer: {show(row.after.problem)}"


def _format_differences(row: QuestionRow, before: RankedAnswer, show: Any) -> Iterator[str]:
    for name, (old, new) in (("ndcg", row.ndcg), ("recall", row.recall)):
        if old != new:
            yield f"{name} {_format_number(old)} → {_format_number(new)}"
    for move in row.moves:
        yield f"{show(move.identity)} (grade {move.grade}): rank {_rank(move.before, row)} → {_rank(move.after, row)}"
    for fade in row.faded:
        loss = f"no longer has {', '.join(map(show, fade.words))}; " if fade.words else ""
        yield f"{show(fade.identity)} (grade {fade.grade}): {loss}score by words {fade.before:.2f} → {fade.after:.2f}"
    judged_names = {move.identity for move in row.moves}
    for word, names in (("came in", row.entered), ("went out", row.left)):
        unjudged_names = [show(name) for name in names if name not in judged_names]
        if unjudged_names:
            yield f"{word}, not judged: {', '.join(unjudged_names)}"
    if not (row.moves or row.entered or row.left) and before.ranked != row.after.ranked:
        yield "others changed their order"


def _format_notes(report: ImpactReport, show: Any) -> Iterator[str]:
    for finding in report.findings:
        place = f" {show(finding.place)}" if finding.path else ""
        yield f"{finding.code}{place}: {show(finding.message)}"
    for message in report.degraded:
        yield f"Degraded answers, so that this compares words alone: {show(message)}"
    for message in report.crossed:
        yield f"Limit crossed: {message}"
    if not report.rows:
        yield "No judged questions: list some under `questions` in ontology/questions.yaml"


def _format_means(report: ImpactReport) -> Iterator[str]:
    for name in ("ndcg", "recall"):
        before, after = report.mean(name)
        if before is not None and after is not None:
            yield f"mean {name}@{report.k}: {_format_number(before)} -> {_format_number(after)} ({after - before:+.4f})"
    yield f"judged records lost: {report.lost}"
    yield f"{FADED}: {report.faded}"


def _build_row(row: QuestionRow) -> dict[str, Any]:
    answers = {"before": list(row.before.ranked) if row.before else None, "after": list(row.after.ranked)}
    row_object = {
        **_describe_question(row.question),
        "ndcg": _round_sides(*row.ndcg),
        "recall": _round_sides(*row.recall),
        **answers,
    }
    row_object["moves"] = [asdict(move) for move in row.moves]
    row_object["faded"] = [
        {"identity": fade.identity, "grade": fade.grade, "words": list(fade.words)}
        | {"score": _round_sides(fade.before, fade.after)}
        for fade in row.faded
    ]
    row_object |= {"lost": row.lost, "entered": row.entered, "left": row.left}
    return row_object | ({"problem": row.after.problem} if row.after.problem else {})


def _describe_question(question: JudgedQuestion) -> dict[str, Any]:
    description: dict[str, Any] = {
        "question": question.text,
        "type": question.type,
        "expected": dict(question.expected),
    }
    description |= {"mode": question.mode} if question.mode else {}
    return description | ({"where": question.where} if question.where else {})


def _round_sides(before: float | None, after: float | None) -> dict[str, float | None]:
    sides = (("before", before), ("after", after))
    return {name: None if value is None else round(value, 6) for name, value in sides}


def _measure_loss(row: QuestionRow) -> tuple[float, str]:
    before, after = row.ndcg
    return (after - before if before is not None else 0.0), row.question.text


def _rank(rank: int | None, row: QuestionRow) -> str:
    return str(rank) if rank else f"beyond {row.k}"


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _format_text(text: str) -> str:
    return escape_line(cut(text, _LONGEST))


def _format_span(text: str) -> str:
    return span(cut(text, _LONGEST))
