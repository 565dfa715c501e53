"""`impact`: both sides of a change opened one after the other, and asked the judged questions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from duckkb.app.wiring import Choice, find, wire
from duckkb.engine import boot as booting
from duckkb.engine.base import Progress
from duckkb.errors import StateError, UsageError
from duckkb.ports import Embedder
from duckkb.review import impact as judged
from duckkb.review.diff import sides
from duckkb.review.impact import Answer, Question, Report
from duckkb.truth import revisions
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class _Side:
    """A side by its name for people, and the revision to open; None for the working tree."""

    name: str
    at: str | None


def impact(
    path: "str | Path | None" = None,
    range: str | None = None,
    *,
    k: int = 10,
    fail_on: Mapping[str, float] | None = None,
    lenient: bool = False,
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> Report:
    """Ask the judged questions on both sides of a change: `BASE` against the working tree (HEAD where none is named),
    `BASE..HEAD`, or `BASE...HEAD` from where the two part. `fail_on` sets the limits of `ndcg`, `recall` (a drop of the mean)
    and `lost`: those reached are in the report's `crossed`. With `lenient` lines that cannot be read are left out. Raises as `open` does, and `errors.UsageError`."""
    unknown = [name for name in fail_on or {} if name not in judged.MEASURES]
    if unknown or k < 1:
        raise UsageError(
            "limits are set for ndcg, recall and lost, and k is at least 1", suggestion="duckkb impact --help"
        )
    root = find(path)
    old, new = _sides(root, range)
    chosen = Choice(lenient=lenient, embedder=embedder, progress=progress)
    questions, _, _ = _asked(root, new, chosen, None, k)
    before_questions, before, known = _asked(root, old, chosen, questions, k)
    _, after, _ = _asked(root, new, chosen, questions, k)
    asked = {question.key for question in questions}
    removed = [question for question in before_questions if known and question.key not in asked]
    report = judged.compare((old.name, new.name), before, after, (questions, removed, k))
    return _with_limits(report, fail_on or {})


def _with_limits(report: Report, limits: Mapping[str, float]) -> Report:
    return replace(report, crossed=judged.crossed(report, limits))


def _asked(
    root: Path, side: _Side, chosen: Choice, questions: Sequence[Question] | None, k: int
) -> tuple[list[Question], list[Answer | None], bool]:
    """A side's own questions, its answers to those given, and whether there is a base at all on that side."""
    try:
        loaded, wiring = wire(root, replace(chosen, at=side.at))
    except StateError as problem:
        if problem.code != "E_NO_KB" or side.at is None:
            raise
        return [], [None for _ in questions or ()], False
    own = judged.read(loaded.questions)
    if not questions:
        return own, [], True
    base = booting.boot(wiring)
    try:
        return own, judged.ask(base, questions, k), True
    finally:
        base.close()


def _sides(root: Path, text: str | None) -> tuple[_Side, _Side]:
    wanted = sides.parse_range(text)
    base = revisions.revision(root, wanted.base)
    if wanted.against != "commit":
        return _Side(wanted.base, base.commit or base.tree), _Side("the working tree", None)
    head = revisions.revision(root, wanted.head)
    if wanted.since_parting:
        base = revisions.merge_base(root, base, head)
    return _Side(wanted.base, base.commit or base.tree), _Side(wanted.head, head.commit or head.tree)
