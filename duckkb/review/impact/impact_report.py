"""An impact report for people and programs: text, markdown, a JSON object. Data stands in code spans alone in markdown."""

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from duckkb.review.diff.budget import Section, fitted
from duckkb.review.impact.impact import FADED, Answer, Question, Report, Row
from duckkb.review.outcome import of_findings

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]")
_MOST_LINES = 20
BUDGET = 30_000
"""Bytes of a comment, of which a forge takes 65,536: the records that differ need room too."""
_LONGEST = 200


def as_object(report: Report) -> dict[str, Any]:
    """The whole report; `version` rises when a key changes its meaning."""
    means = {name: _before_after(*report.mean(name)) for name in ("ndcg", "recall")}
    return {
        "version": 1,
        "outcome": "limits" if report.crossed else of_findings(report.errors),
        "base": report.base,
        "head": report.head,
        "k": report.k,
        "questions": len(report.rows),
        "compared": len(report.compared),
        **means,
        "lost": report.lost,
        "faded": report.faded,
        "crossed": list(report.crossed),
        "degraded": report.degraded,
        "results": [_row_object(row) for row in report.rows],
        "removed": [_asked(question) for question in report.removed],
        "findings": [{name: value for name, value in asdict(one).items() if value} for one in report.findings],
    }


def as_text(report: Report) -> Iterator[str]:
    """Lines for a terminal."""
    yield f"{report.base} -> {report.head}: {_count(len(report.rows), 'judged question')}, the first {report.k} results"
    yield from _means(report)
    for row in report.rows:
        if row.is_changed:
            yield ""
            yield f"{_plain(row.question.type)}: {_plain(row.question.text)}"
            yield from (f"  {line}" for line in _row_lines(row, _plain))
    yield from _closing(report, _plain)


def as_markdown(report: Report, budget: int = BUDGET) -> Iterator[str]:
    """Lines for a pull request's comment, of at most `budget` bytes: the means, what was crossed or lacks, then the questions
    whose answers differ, the worst first. What has no room is counted."""
    head = [
        f"### Retrieval impact: {span(report.base)} → {span(report.head)}",
        "",
        "| | before | after |",
        "|---|---|---|",
    ]
    for name in ("ndcg", "recall"):
        before, after = report.mean(name)
        head.append(f"| mean {name}@{report.k} | {_number(before)} | {_number(after)} |")
    head += [f"| judged records lost | | {report.lost} |", f"| {FADED} | | {report.faded} |"]
    rooted = replace(report, findings=tuple(one.rooted(report.prefix) for one in report.findings))
    said = [f"- {line}" for line in _closing(rooted, span)]
    changed = sorted((row for row in report.rows if row.is_changed), key=_loss)
    asked = ["\n".join(_question(row)) for row in changed]
    fold = "\n<details open><summary>Questions whose answers changed</summary>\n"
    sections = [
        Section("", lambda: said, ["line"] * len(said), 0.5),
        Section(fold, lambda: asked, [row.question.type for row in changed], 0.5, "\n</details>\n"),
    ]
    yield fitted("\n".join(head) + "\n", sections, budget).rstrip("\n")


def _question(row: Row) -> Iterator[str]:
    yield f"- {span(row.question.type)} {span(row.question.text)}"
    lines = [f"  - {line}" for line in _row_lines(row, span)]
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"  - {len(lines) - _MOST_LINES} more"


def span(text: str) -> str:
    r"""A text as a code span on one line, which cannot end it, mention, link or hide anything.

    >>> span("a `b` @c\n")
    '`` a `b` @c\\u000a ``'
    """
    shown = _plain(text) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    gap = " " if len(fence) > 1 or shown.startswith(" ") or shown.endswith(" ") else ""
    return f"{fence}{gap}{shown}{gap}{fence}"


def _row_lines(row: Row, show: Any) -> Iterator[str]:
    if row.before is None:
        yield f"new: ndcg {_number(row.ndcg[1])}, recall {_number(row.recall[1])}"
        yield from _problems(row.after, show)
        return
    for name, (before, after) in (("ndcg", row.ndcg), ("recall", row.recall)):
        if before != after:
            yield f"{name} {_number(before)} → {_number(after)}"
    for move in row.moves:
        yield f"{show(move.identity)} (grade {move.grade}): rank {_rank(move.before, row)} → {_rank(move.after, row)}"
    for fade in row.faded:
        lost = f"no longer has {', '.join(map(show, fade.words))}; " if fade.words else ""
        yield f"{show(fade.identity)} (grade {fade.grade}): {lost}score by words {fade.before:.2f} → {fade.after:.2f}"
    judged = {move.identity for move in row.moves}
    for word, names in (("came in", row.entered), ("went out", row.left)):
        others = [show(name) for name in names if name not in judged]
        if others:
            yield f"{word}, not judged: {', '.join(others)}"
    if not (row.moves or row.entered or row.left) and row.before.ranked != row.after.ranked:
        yield "others changed their order"
    yield from _problems(row.after, show)


def _problems(answer: Answer, show: Any) -> Iterator[str]:
    if answer.problem:
        yield f"no answer: {show(answer.problem)}"


def _closing(report: Report, show: Any) -> Iterator[str]:
    for one in report.findings:
        place = f" {show(one.place)}" if one.path else ""
        yield f"{one.code}{place}: {show(one.message)}"
    for said in report.degraded:
        yield f"Degraded answers, so that this compares words alone: {show(said)}"
    for said in report.crossed:
        yield f"Limit crossed: {said}"
    if not report.rows:
        yield "There are no judged questions: list some under `questions` in ontology/questions.yaml"


def _means(report: Report) -> Iterator[str]:
    for name in ("ndcg", "recall"):
        before, after = report.mean(name)
        if before is not None and after is not None:
            yield f"mean {name}@{report.k}: {_number(before)} -> {_number(after)} ({after - before:+.4f})"
    yield f"judged records lost: {report.lost}"
    yield f"{FADED}: {report.faded}"


def _row_object(row: Row) -> dict[str, Any]:
    answers = {"before": list(row.before.ranked) if row.before else None, "after": list(row.after.ranked)}
    found = {**_asked(row.question), "ndcg": _before_after(*row.ndcg), "recall": _before_after(*row.recall), **answers}
    found["moves"] = [
        {"identity": move.identity, "grade": move.grade, "before": move.before, "after": move.after}
        for move in row.moves
    ]
    found["faded"] = [
        {"identity": one.identity, "grade": one.grade, "words": list(one.words)}
        | {"score": _before_after(one.before, one.after)}
        for one in row.faded
    ]
    found |= {"lost": row.lost, "entered": row.entered, "left": row.left}
    return found | ({"problem": row.after.problem} if row.after.problem else {})


def _asked(question: Question) -> dict[str, Any]:
    found: dict[str, Any] = {"question": question.text, "type": question.type, "expected": dict(question.expected)}
    found |= {"mode": question.mode} if question.mode else {}
    return found | ({"where": question.where} if question.where else {})


def _before_after(before: float | None, after: float | None) -> dict[str, float | None]:
    return {"before": _round(before), "after": _round(after)}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _loss(row: Row) -> tuple[float, str]:
    before, after = row.ndcg
    return (after - before if before is not None else 0.0), row.question.text


def _rank(rank: int | None, row: Row) -> str:
    return str(rank) if rank else f"beyond {row.k}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _plain(text: str) -> str:
    shown = _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
