"""`impact`: both sides of a change opened one after the other, and asked the judged questions. `quality`: the same questions asked of
each lane, now and at commits of the history."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.actions.diffing import range_of
from duckkb.actions.folder import OpenOptions, Unopened
from duckkb.actions.tracing import history_of, sample_line
from duckkb.codes import CODES
from duckkb.config import Loaded
from duckkb.engine import boot as booting
from duckkb.engine.at import CONFIG, ONTOLOGY, configuration
from duckkb.engine.base import Base, Progress, Wiring
from duckkb.engine.narrowed import part_of
from duckkb.errors import Finding, OntologyError, StateError, UsageError
from duckkb.ontology.load import questions_in
from duckkb.ontology.model import Ontology
from duckkb.ports import Embedder
from duckkb.review.check.guards import allow_weakening, guard_questions
from duckkb.review.diff.model import Label
from duckkb.review.diff.versions import parse_range
from duckkb.review.health.growth import places
from duckkb.review.impact import impact as judged
from duckkb.review.impact import quality as evaluation
from duckkb.review.impact.impact import ImpactReport, JudgedQuestion, RankedAnswer
from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import Revision

_Opened = tuple[Loaded, Wiring]


class _Side(Struct, frozen=True):
    """A side by its name, and the revision to open; None for the working tree."""

    label: Label
    at: str | None

    @property
    def name(self) -> str:
        return self.label.shown


class ImpactOptions(Struct, frozen=True):
    """`k` is how many results count. `fail_on` sets the limits of `ndcg`, `recall` (a drop of the mean), `lost` and `faded`:
    those reached are in the report's `crossed`. Questions that are gone or judge lower count as they were, and are findings;
    with `allow_weaker` those of the newer side count alone. Of questions about other `types` (None: all), and then of those with a
    filter, which may read any table, nothing is said. Lines of the older side that cannot be read are left out, as
    those of the newer one with `lenient`."""

    k: int = 10
    fail_on: Mapping[str, float] | None = None
    lenient: bool = False
    allow_weaker: bool = False
    embedder: Embedder | None = None
    progress: Progress | None = None
    types: frozenset[str] | None = None

    def told(self, questions: Sequence[JudgedQuestion]) -> list[JudgedQuestion]:
        return [
            question
            for question in questions
            if self.types is None or (question.type in self.types and not question.where)
        ]


def impact(unopened: Unopened, range: str | None, options: ImpactOptions) -> ImpactReport:
    """Ask the judged questions on both sides of a change: `BASE` against the working tree (HEAD where none is named),
    `BASE..HEAD`, or `BASE...HEAD` from where the two part, by what BASE has asked since too. The newer configuration stands in where the older does not load,
    and what could not be read is left out: both are findings. Raises as `open` does, and `errors.UsageError`."""
    refuse_limits(options)
    k, fail_on, allow_weaker = options.k, options.fail_on or {}, options.allow_weaker
    root = unopened.root
    old, new = _resolve_sides(root, range)
    open_options = OpenOptions(lenient=options.lenient, embedder=options.embedder, progress=options.progress)
    newer = _wire_side(unopened, new, open_options)
    older, side_findings = _wire_older_side(unopened, (old, new), open_options)
    documents = [side[0].documents if side else () for side in (older, newer)]
    side_questions = [
        options.told(judged.read([item for document in of for item in questions_in(document)])) for of in documents
    ]
    findings = tuple(guard_questions(*documents))
    questions = (
        side_questions[1]
        if allow_weaker
        else [*side_questions[0], *(item for item in side_questions[1] if item not in side_questions[0])]
    )  # each as its side judges it
    known_keys = {question.key for of in side_questions for question in of}
    since = [] if allow_weaker else options.told(_find_new_questions(unopened, old, open_options))
    questions += [question for question in since if question.key not in known_keys]
    before, after = (_ask_side(of, side, questions, k, side_findings) for of, side in ((old, older), (new, newer)))
    removed_questions = [question for question in side_questions[0] if judged.milder(question, side_questions[1])]
    rows = judged.side_by_side(questions, before, after, k)
    findings = (*side_findings, *(allow_weakening(findings) if allow_weaker else findings))
    return ImpactReport(
        old.label, new.label, k, rows, tuple(removed_questions), fail_on, findings, prefix=revisions.prefix(root)
    )


def impact_object(base: Base, *, range: str | None = None, branch: str | None = None, k: int = 10) -> dict[str, Any]:
    """What `duckkb impact --format json` prints: of HEAD against the files as they are, of a range, or of what a branch brings. Raises
    as `impact`, and as `diffing.range_of`. Who sees a part of the base is told of the questions about its types, and no finding."""
    from duckkb.review.impact.impact_report import convert_report_to_object

    resolved_range = range_of(base, range, branch)
    if (part := part_of(base)) is None:
        return convert_report_to_object(impact(Unopened.around(base), resolved_range, ImpactOptions(k)))
    report = impact(Unopened.around(part.whole), resolved_range, ImpactOptions(k, lenient=True, types=part.types))
    answer = convert_report_to_object(replace(report, findings=()))
    return answer | {"degraded": ["answered in part without vectors"] if answer["degraded"] else []}


def _list_places(root: Path, ontology: Ontology) -> tuple[str, ...]:
    return (*places(root, ontology), ONTOLOGY, CONFIG)


def quality(base: Base, *, limit: int = 20, evaluate: int = 0, timeout: float = 60.0) -> dict[str, Any]:
    """The judged questions, what each lane makes of them, and the mean nDCG@10 of each lane: of the base as it is, of which `left` were
    not asked within `timeout` seconds and are the next time; and at commits of the history (`commits`, the oldest first), of which at most `limit`
    are looked at. Those are shown that were evaluated once, and `evaluate` more are in this call, the newest first, begun within `timeout`. `commits`
    is None of what is published, and for who sees a part of the base, empty outside of git."""
    rows = evaluation.now(base, timeout)
    asked_rows = [row for _, row in rows if row is not None]
    answer: dict[str, Any] = {
        "k": evaluation.K,
        "deepest": evaluation.DEEPEST,
        "ndcg": evaluation.means(asked_rows),
        "asked": len(asked_rows),
        "left": len(rows) - len(asked_rows),
        "questions": [_describe_question(question, row) for question, row in rows],
    }
    none = {"commits": None, "total": 0, "commits_left": 0, "shallow": False}
    history = history_of(base, _list_places, limit)
    if history is None or not rows:
        return answer | none
    samples, commits_left = evaluation.evaluate_history(base, history, evaluate, timeout)
    commits = [
        sample_line(entry.sample) | {"ndcg": dict(entry.ndcg)} | ({"problem": entry.problem} if entry.problem else {})
        for entry in samples
    ]
    return answer | {
        "commits": commits,
        "total": history.total,
        "commits_left": commits_left,
        "shallow": history.is_shallow,
    }


def _describe_question(question: JudgedQuestion, row: "evaluation.Row | None") -> dict[str, Any]:
    line: dict[str, Any] = {"question": question.text, "type": question.type, "where": question.where}
    lanes = {
        lane: {"ndcg": result.ndcg, "ranks": dict(result.ranks)}
        | ({"problem": result.problem} if result.problem else {})
        for lane, result in (row or {}).items()
    }
    return line | {"expected": dict(question.expected), "lanes": lanes}


def refuse_limits(options: ImpactOptions) -> None:
    """Raise `errors.UsageError` for limits that there are not."""
    if options.k < 1 or any(name not in judged.MEASURES for name in options.fail_on or {}):
        raise UsageError(
            "limits are set for ndcg, recall, lost and faded, and k is at least 1", suggestion="duckkb impact --help"
        )


def _wire_older_side(
    closed_base: Unopened, sides: tuple[_Side, _Side], open_options: OpenOptions
) -> tuple[_Opened | None, list[Finding]]:
    """The older side as far as it can be asked, for the change may be what mends it: without lines that cannot be read, and
    by the newer side's configuration where its own does not load, which is said. Raises as `_wire_side` does."""
    old, new = sides
    open_options = replace(open_options, lenient=True)
    try:
        return _wire_side(closed_base, old, open_options), []
    except OntologyError as problem:
        instead = _read_configuration(closed_base.root, new)
        message = f"the configuration {problem.message}; it was asked by that of {new.name}"
        finding = Finding("W_BASE_CONFIG", message, remedy=CODES["W_BASE_CONFIG"].remedy)
        return _wire_side(closed_base, old, replace(open_options, instead=instead)), [finding]


def _read_configuration(root: Path, side: _Side) -> Mapping[str, bytes | None]:
    return {} if side.at is None else configuration(root, revisions.revision(root, side.at), config.paths(root))


def _ask_side(
    of: _Side, side: _Opened | None, questions: Sequence[JudgedQuestion], k: int, findings: list[Finding]
) -> Sequence[RankedAnswer | None]:
    """What a side answers; `findings` gets what it had to leave out."""
    if side is None or not questions:
        return [None for _ in questions]
    base = booting.boot(side[1])
    try:
        if wrong := base.tree.unreadable:
            message = f"{of.name}: {len(wrong):,} lines cannot be read and were left out, the first at {wrong[0].place}"
            findings.append(Finding("W_LENIENT", message, remedy=CODES["W_LENIENT"].remedy))
        return judged.ask(base, questions, k)
    finally:
        base.close()


def _wire_side(closed_base: Unopened, side: _Side, open_options: OpenOptions) -> _Opened | None:
    """None where there is no base on this side. Raises as `open`, and says of which side."""
    try:
        return closed_base.wire(closed_base.root, replace(open_options, at=side.at))
    except StateError as problem:
        if problem.code != "E_NO_KB" or side.at is None:
            raise
        return None
    except OntologyError as problem:
        if side.at is not None:
            problem.message = f"as of {side.name}: {problem.message}"
        raise


def _resolve_sides(root: Path, text: str | None) -> tuple[_Side, _Side]:
    parsed_range = parse_range(text)
    base = revisions.revision(root, parsed_range.base)
    if parsed_range.against != "commit":
        return _build_side(parsed_range.base, base), _Side(Label("the working tree"), None)
    head = revisions.revision(root, parsed_range.head)
    if parsed_range.since_parting:
        base = revisions.merge_base(root, base, head)
    return _build_side(parsed_range.base, base, parsed_range.head if parsed_range.since_parting else ""), _build_side(
        parsed_range.head, head
    )


def _build_side(name: str, at: Revision, parted_from: str = "") -> _Side:
    commit = at.commit or at.tree
    return _Side(Label(name, commit, parted_from), commit)


def _find_new_questions(closed_base: Unopened, old: _Side, open_options: OpenOptions) -> list[JudgedQuestion]:
    """The questions that the named base has, where the older side is the commit in which the newer one parted from it: those that
    came to it since judge the change too."""
    if not old.label.parted_from:
        return []
    tip = _build_side(old.label.name, revisions.revision(closed_base.root, old.label.name))
    if tip.at == old.at:
        return []
    with suppress(OntologyError):
        tip_side = _wire_side(closed_base, tip, replace(open_options, lenient=True))
        documents = tip_side[0].documents if tip_side else ()
        return judged.read([item for document in documents for item in questions_in(document)])
    return []
