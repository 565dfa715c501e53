"""An impact report for people and programs: text, markdown, a JSON object. Data stands in code spans alone in markdown."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict, replace

from duckkb.review.impact.impact import FADED, ImpactReport, JudgedQuestion, QuestionRow, RankedAnswer
from duckkb.review.reports.budget import ReportSection, fitted
from duckkb.review.reports.findings import of_findings
from duckkb.review.reports.markup import cut, line, many, span

_MOST_LINES = 20
_LONGEST = 200


def as_object(report: ImpactReport) -> dict[str, Any]:
    """The whole report; `version` rises when a key changes its meaning."""
    means = {name: _before_after(*report.mean(name)) for name in ("ndcg", "recall")}
    return {
        "version": 1,
        "outcome": "limits" if report.crossed else of_findings(report.errors),
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
        "results": [_row_object(row) for row in report.rows],
        "removed": [_asked(question) for question in report.removed],
        "findings": [{name: value for name, value in asdict(one).items() if value} for one in report.findings],
    }


def as_text(report: ImpactReport, budget: int) -> Iterator[str]:
    """Lines for a terminal."""
    yield f"{report.base.shown} -> {report.head.shown}: {many(len(report.rows), 'judged question')}, the first {report.k} results"
    yield from _means(report)
    for row in report.rows:
        if row.is_changed:
            yield ""
            yield f"{_text(row.question.type)}: {_text(row.question.text)}"
            yield from (f"  {one}" for one in _row_lines(row, _text))
    yield from _closing(report, _text)


def as_markdown(report: ImpactReport, budget: int) -> Iterator[str]:
    """Lines for a pull request's comment, of at most `budget` bytes: the means, what was crossed or lacks, then the questions
    whose answers differ, the worst first. What has no room is counted."""
    head = [
        f"### Retrieval impact: {_span(report.base.shown)} → {_span(report.head.shown)}",
        "",
        "| | before | after |",
        "|---|---|---|",
    ]
    for name in ("ndcg", "recall"):
        before, after = report.mean(name)
        head.append(f"| mean {name}@{report.k} | {_number(before)} | {_number(after)} |")
    head += [f"| judged records lost | | {report.lost} |", f"| {FADED} | | {report.faded} |"]
    rooted = replace(report, findings=tuple(one.rooted(report.prefix) for one in report.findings))
    said = [f"- {one}" for one in _closing(rooted, _span)]
    # What changed places without being judged stands last: nobody has to do anything about it.
    changed = sorted(
        (row for row in report.rows if row.is_changed), key=lambda row: (not row.is_judged_otherwise, *_loss(row))
    )
    asked = ["\n".join(_question(row)) for row in changed]
    fold = "\n<details open><summary>Questions whose answers changed</summary>\n"
    sections = [
        ReportSection("", lambda: said, ["line"] * len(said), 0.5),
        ReportSection(fold, lambda: asked, [row.question.type for row in changed], 0.5, "\n</details>\n"),
    ]
    yield fitted("\n".join(head) + "\n", sections, budget).rstrip("\n")


def _question(row: QuestionRow) -> Iterator[str]:
    yield f"- {_span(row.question.type)} {_span(row.question.text)}"
    lines = [f"  - {one}" for one in _row_lines(row, _span)]
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"  - {len(lines) - _MOST_LINES} more"


def _row_lines(row: QuestionRow, show: Any) -> Iterator[str]:
    if row.before is None:
        yield f"new: ndcg {_number(row.ndcg[1])}, recall {_number(row.recall[1])}"
    else:
        yield from _differences(row, row.before, show)
    if row.after.problem:
        yield f"no answer: {show(row.after.problem)}"


def _differences(row: QuestionRow, before: RankedAnswer, show: Any) -> Iterator[str]:
    for name, (old, new) in (("ndcg", row.ndcg), ("recall", row.recall)):
        if old != new:
            yield f"{name} {_number(old)} → {_number(new)}"
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
    if not (row.moves or row.entered or row.left) and before.ranked != row.after.ranked:
        yield "others changed their order"


def _closing(report: ImpactReport, show: Any) -> Iterator[str]:
    for one in report.findings:
        place = f" {show(one.place)}" if one.path else ""
        yield f"{one.code}{place}: {show(one.message)}"
    for said in report.degraded:
        yield f"Degraded answers, so that this compares words alone: {show(said)}"
    for said in report.crossed:
        yield f"Limit crossed: {said}"
    if not report.rows:
        yield "There are no judged questions: list some under `questions` in ontology/questions.yaml"


def _means(report: ImpactReport) -> Iterator[str]:
    for name in ("ndcg", "recall"):
        before, after = report.mean(name)
        if before is not None and after is not None:
            yield f"mean {name}@{report.k}: {_number(before)} -> {_number(after)} ({after - before:+.4f})"
    yield f"judged records lost: {report.lost}"
    yield f"{FADED}: {report.faded}"


def _row_object(row: QuestionRow) -> dict[str, Any]:
    answers = {"before": list(row.before.ranked) if row.before else None, "after": list(row.after.ranked)}
    found = {**_asked(row.question), "ndcg": _before_after(*row.ndcg), "recall": _before_after(*row.recall), **answers}
    found["moves"] = [asdict(move) for move in row.moves]
    found["faded"] = [
        {"identity": one.identity, "grade": one.grade, "words": list(one.words)}
        | {"score": _before_after(one.before, one.after)}
        for one in row.faded
    ]
    found |= {"lost": row.lost, "entered": row.entered, "left": row.left}
    return found | ({"problem": row.after.problem} if row.after.problem else {})


def _asked(question: JudgedQuestion) -> dict[str, Any]:
    found: dict[str, Any] = {"question": question.text, "type": question.type, "expected": dict(question.expected)}
    found |= {"mode": question.mode} if question.mode else {}
    return found | ({"where": question.where} if question.where else {})


def _before_after(before: float | None, after: float | None) -> dict[str, float | None]:
    sides = (("before", before), ("after", after))
    return {name: None if value is None else round(value, 6) for name, value in sides}


def _loss(row: QuestionRow) -> tuple[float, str]:
    before, after = row.ndcg
    return (after - before if before is not None else 0.0), row.question.text


def _rank(rank: int | None, row: QuestionRow) -> str:
    return str(rank) if rank else f"beyond {row.k}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _text(text: str) -> str:
    return line(cut(text, _LONGEST))


def _span(text: str) -> str:
    return span(cut(text, _LONGEST))
