"""An impact report as text, markdown or a JSON object. In markdown, data stands in code spans alone."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict, replace

from duckkb.review.impact.impact import FADED, ImpactReport, JudgedQuestion, QuestionRow, RankedAnswer
from duckkb.review.reports.budget import ReportSection, fit_sections
from duckkb.review.reports.findings import judge_findings
from duckkb.review.reports.markup import cut, line, many, span

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
    return line(cut(text, _LONGEST))


def _format_span(text: str) -> str:
    return span(cut(text, _LONGEST))
