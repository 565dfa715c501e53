"""`impact`: both sides of a change opened one after the other, and asked the judged questions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from duckkb.app.wiring import Choice, find, wire
from duckkb.config import Loaded
from duckkb.engine import boot as booting
from duckkb.engine.base import Progress, Wiring
from duckkb.errors import OntologyError, StateError, UsageError
from duckkb.ontology.questions import questions_in
from duckkb.ontology.source import Document
from duckkb.ports import Embedder
from duckkb.review import impact as judged
from duckkb.review.diff import sides
from duckkb.review.guards import allowed, of_questions
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
    allow_weaker: bool = False,
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> Report:
    """Ask the judged questions on both sides of a change: `BASE` against the working tree (HEAD where none is named),
    `BASE..HEAD`, or `BASE...HEAD` from where the two part. `fail_on` sets the limits of `ndcg`, `recall` (a drop of the mean)
    `lost` and `faded`: those reached are in the report's `crossed`. Questions that are gone or judge lower count as they were, and are findings; with `allow_weaker` those of
    the newer side count alone. With `lenient` lines that cannot be read are left out. Raises as `open` does, and `errors.UsageError`."""
    unknown = [name for name in fail_on or {} if name not in judged.MEASURES]
    if unknown or k < 1:
        raise UsageError(
            "limits are set for ndcg, recall, lost and faded, and k is at least 1", suggestion="duckkb impact --help"
        )
    root = find(path)
    old, new = _sides(root, range)
    chosen = Choice(lenient=lenient, embedder=embedder, progress=progress)
    documents = [_documents(root, side, chosen) for side in (old, new)]
    own = [judged.read([one for document in of for one in questions_in(document)]) for of in documents]
    findings = tuple(of_questions(*documents))
    questions = own[1] if allow_weaker else judged.of_both(*own)
    before, after = (_answers(root, side, chosen, questions, k) for side in (old, new))
    removed = [question for question in own[0] if judged.milder(question, own[1])]
    report = judged.compare((old.name, new.name), before, after, (questions, removed, k))
    findings = allowed(findings) if allow_weaker else findings
    return replace(report, crossed=judged.crossed(report, fail_on or {}), findings=findings)


def _documents(root: Path, side: _Side, chosen: Choice) -> tuple[Document, ...]:
    """The configuration of a side; nothing where there was no base yet."""
    found = _wired(root, side, chosen)
    return found[0].documents if found else ()


def _answers(root: Path, side: _Side, chosen: Choice, questions: Sequence[Question], k: int) -> Sequence[Answer | None]:
    found = _wired(root, side, chosen) if questions else None
    if found is None:
        return [None for _ in questions]
    base = booting.boot(found[1])
    try:
        return judged.ask(base, questions, k)
    finally:
        base.close()


def _wired(root: Path, side: _Side, chosen: Choice) -> "tuple[Loaded, Wiring] | None":
    """None where there is no base on this side. Raises as `open`, and says of which side."""
    try:
        return wire(root, replace(chosen, at=side.at))
    except StateError as problem:
        if problem.code != "E_NO_KB" or side.at is None:
            raise
        return None
    except OntologyError as problem:
        if side.at is not None:
            problem.message = f"as of {side.name}: {problem.message}"
        raise


def _sides(root: Path, text: str | None) -> tuple[_Side, _Side]:
    wanted = sides.parse_range(text)
    base = revisions.revision(root, wanted.base)
    if wanted.against != "commit":
        return _Side(wanted.base, base.commit or base.tree), _Side("the working tree", None)
    head = revisions.revision(root, wanted.head)
    if wanted.since_parting:
        base = revisions.merge_base(root, base, head)
    return _Side(wanted.base, base.commit or base.tree), _Side(wanted.head, head.commit or head.tree)
