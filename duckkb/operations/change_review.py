"""The actions impact and quality: judged questions, asked of both sides of a change, or of each lane over time.

The sides are opened one after the other. `quality` asks of the base now and at commits of the history.

The action review: the difference of a change, judged as a whole, with its impact; either may be missing."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.config import Loaded
from duckkb.engine import boot
from duckkb.engine.base import Base, Progress, Wiring
from duckkb.engine.boot import CONFIG, ONTOLOGY, configuration
from duckkb.engine.scoped_base import part_of
from duckkb.ontology.model import Ontology
from duckkb.ontology.ontology_files import questions_in
from duckkb.operations.lifecycle import OpenOptions, Unopened
from duckkb.operations.record_origins import history_of, sample_line
from duckkb.operations.version_diff import DiffRequest, diff, links_of, range_of
from duckkb.ports import Embedder
from duckkb.review import impact_report, search_quality
from duckkb.review.compared_versions import parse_range
from duckkb.review.diff_model import Diff, DiffOptions, Label
from duckkb.review.guards import allow_weakening, guard_questions
from duckkb.review.health_checks import places
from duckkb.review.impact_report import ImpactReport, JudgedQuestion, RankedAnswer
from duckkb.review.report_formats import REVIEW
from duckkb.review.verdict import Review
from duckkb.storage import path_guard, revisions
from duckkb.storage.revisions import Revision
from duckkb.types.codes import CODES
from duckkb.types.errors import DuckkbError, Finding, OntologyError, StateError, UsageError

_Opened = tuple[Loaded, Wiring]


class _Side(Struct, frozen=True):
    """A side by its name, with the revision to open; None for the working tree."""

    label: Label
    at: str | None

    @property
    def name(self) -> str:
        return self.label.shown


class ImpactOptions(Struct, frozen=True):
    """The options of an impact: `k` results count, and `fail_on` sets limits.

    The limits are of `ndcg` and `recall` (a drop of the mean), `lost` and `faded`; those reached are in the
    report's `crossed`. Removed or weaker questions count as they were, and are findings; with `allow_weaker`
    only those of the newer side count. `types` (None: all) hides questions about other types, and questions
    with a filter, which may read any table. Unreadable lines of the older side are left out; with `lenient`,
    those of the newer side too.
    """

    k: int = 10
    fail_on: Mapping[str, float] | None = None
    lenient: bool = False
    allow_weaker: bool = False
    embedder: Embedder | None = None
    progress: Progress | None = None
    types: frozenset[str] | None = None

    def filter_questions(self, questions: Sequence[JudgedQuestion]) -> list[JudgedQuestion]:
        return [
            question
            for question in questions
            if self.types is None or (question.type in self.types and not question.where)
        ]


def impact(unopened: Unopened, range: str | None, options: ImpactOptions) -> ImpactReport:
    """Ask the judged questions on both sides of a change.

    The change is `BASE` (HEAD by default) against the working tree, `BASE..HEAD`, or `BASE...HEAD` from where
    the two part, then also with BASE's newer questions. The newer configuration replaces an older one that does
    not load, and unreadable parts are left out: both are findings. Raises as `open` does, and
    `errors.UsageError`.
    """
    refuse_limits(options)
    k, fail_on, allow_weaker = options.k, options.fail_on or {}, options.allow_weaker
    root = unopened.root
    old, new = _resolve_sides(root, range)
    open_options = OpenOptions(lenient=options.lenient, embedder=options.embedder, progress=options.progress)
    newer = _wire_side(unopened, new, open_options)
    older, side_findings = _wire_older_side(unopened, (old, new), open_options)
    documents = [side[0].documents if side else () for side in (older, newer)]
    side_questions = [
        options.filter_questions(impact_report.read([item for document in of for item in questions_in(document)]))
        for of in documents
    ]
    findings = tuple(guard_questions(*documents))
    questions = (
        side_questions[1]
        if allow_weaker
        else [*side_questions[0], *(item for item in side_questions[1] if item not in side_questions[0])]
    )  # each with its own side's judgements
    known_keys = {question.key for of in side_questions for question in of}
    since = [] if allow_weaker else options.filter_questions(_find_new_questions(unopened, old, open_options))
    questions += [question for question in since if question.key not in known_keys]
    before, after = (_ask_side(of, side, questions, k, side_findings) for of, side in ((old, older), (new, newer)))
    removed_questions = [
        question for question in side_questions[0] if impact_report.milder(question, side_questions[1])
    ]
    rows = impact_report.side_by_side(questions, before, after, k)
    findings = (*side_findings, *(allow_weakening(findings) if allow_weaker else findings))
    return ImpactReport(
        old.label, new.label, k, rows, tuple(removed_questions), fail_on, findings, prefix=revisions.prefix(root)
    )


def impact_object(base: Base, *, range: str | None = None, branch: str | None = None, k: int = 10) -> dict[str, Any]:
    """Return what `duckkb impact --format json` prints: of HEAD against the files, of a range, or of a branch.

    Raises as `impact`, and as `diffing.range_of`. Callers who see a part get only the questions about its
    types, and no findings.
    """
    from duckkb.review.impact_report import convert_report_to_object

    resolved_range = range_of(base, range, branch)
    if (part := part_of(base)) is None:
        return convert_report_to_object(impact(Unopened.from_base(base), resolved_range, ImpactOptions(k)))
    report = impact(Unopened.from_base(part.whole), resolved_range, ImpactOptions(k, lenient=True, types=part.types))
    answer = convert_report_to_object(replace(report, findings=()))
    return answer | {"degraded": ["answered in part without vectors"] if answer["degraded"] else []}


def _list_places(root: Path, ontology: Ontology) -> tuple[str, ...]:
    return (*places(root, ontology), ONTOLOGY, CONFIG)


def quality(base: Base, *, limit: int = 20, evaluate: int = 0, timeout: float = 60.0) -> dict[str, Any]:
    """Return the judged questions with each lane's results and mean nDCG@10, now and in the past.

    Now: `left` questions did not fit into `timeout` seconds, and follow at the next call. Past: `commits`, the
    oldest first, are the evaluated ones of at most `limit` commits of the history. This call evaluates
    `evaluate` more, the newest first, begun within `timeout`. `commits` is None for a published base and for
    callers who see a part, and empty outside git.
    """
    rows = search_quality.now(base, timeout)
    asked_rows = [row for _, row in rows if row is not None]
    answer: dict[str, Any] = {
        "k": search_quality.K,
        "deepest": search_quality.DEEPEST,
        "ndcg": search_quality.means(asked_rows),
        "asked": len(asked_rows),
        "left": len(rows) - len(asked_rows),
        "questions": [_describe_question(question, row) for question, row in rows],
    }
    none = {"commits": None, "total": 0, "commits_left": 0, "shallow": False}
    history = history_of(base, _list_places, limit)
    if history is None or not rows:
        return answer | none
    samples, commits_left = search_quality.evaluate_history(base, history, evaluate, timeout)
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


def _describe_question(question: JudgedQuestion, row: "search_quality.Row | None") -> dict[str, Any]:
    line: dict[str, Any] = {"question": question.text, "type": question.type, "where": question.where}
    lanes = {
        lane: {"ndcg": result.ndcg, "ranks": dict(result.ranks)}
        | ({"problem": result.problem} if result.problem else {})
        for lane, result in (row or {}).items()
    }
    return line | {"expected": dict(question.expected), "lanes": lanes}


def refuse_limits(options: ImpactOptions) -> None:
    """Raise `errors.UsageError` for unknown limits."""
    if options.k < 1 or any(name not in impact_report.MEASURES for name in options.fail_on or {}):
        raise UsageError(
            "limits are set for ndcg, recall, lost and faded, and k is at least 1", suggestion="duckkb impact --help"
        )


def _wire_older_side(
    closed_base: Unopened, sides: tuple[_Side, _Side], open_options: OpenOptions
) -> tuple[_Opened | None, list[Finding]]:
    """Open the older side as far as possible, since the change may be what repairs it; return it with findings.

    Leaves out unreadable lines, and uses the newer side's configuration where its own does not load, with a
    finding. Raises as `_wire_side` does.
    """
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
    """Return a side's answers; what it had to leave out is added to `findings`."""
    if side is None or not questions:
        return [None for _ in questions]
    base = boot.boot(side[1])
    try:
        if wrong := base.tree.unreadable:
            message = f"{of.name}: {len(wrong):,} unreadable lines were skipped, the first at {wrong[0].place}"
            findings.append(Finding("W_LENIENT", message, remedy=CODES["W_LENIENT"].remedy))
        return impact_report.ask(base, questions, k)
    finally:
        base.close()


def _wire_side(closed_base: Unopened, side: _Side, open_options: OpenOptions) -> _Opened | None:
    """Open a side; None where it has no base. Raises as `open`, naming the side."""
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
    """Return the named base's newer questions, where the older side is the point at which the newer one parted.

    Questions added since then judge the change too.
    """
    if not old.label.parted_from:
        return []
    tip = _build_side(old.label.name, revisions.revision(closed_base.root, old.label.name))
    if tip.at == old.at:
        return []
    with suppress(OntologyError):
        tip_side = _wire_side(closed_base, tip, replace(open_options, lenient=True))
        documents = tip_side[0].documents if tip_side else ()
        return impact_report.read([item for document in documents for item in questions_in(document)])
    return []


def review(unopened: Unopened, range: str | None, options: ImpactOptions, *, allow_shrink: bool = False) -> Review:
    """Judge a change: `BASE` (HEAD by default) against the working tree, `BASE..HEAD` or `BASE...HEAD`.

    `options` are those of the impact; its `allow_weaker`, and `allow_shrink`, are as for `diff`. Raises
    `errors.UsageError` for an invalid range or limit; other failures of a part are recorded in the review.
    """
    refuse_limits(options)
    request = DiffRequest(parse_range(range), whole=True, allow_weaker=options.allow_weaker, allow_shrink=allow_shrink)
    comparison: Diff | DuckkbError
    try:
        comparison = diff(unopened, request)
    except DuckkbError as problem:
        _refuse_usage(problem)
        comparison = problem
    report: ImpactReport | DuckkbError
    try:
        report = impact(unopened, range, options)
    except DuckkbError as problem:
        _refuse_usage(problem)
        report = problem
    return Review(comparison, report, revisions.prefix(unopened.root))


def lines(
    unopened: Unopened,
    review: Review,
    form: str,
    budget: int | None = None,
    again: Callable[[str], str] = "duckkb diff {}".format,
) -> Iterator[str]:
    """Yield the review in one of the formats of `REVIEW`, in at most `budget` bytes.

    `again` makes the command that continues.
    """
    comparison, links = review.diff, None
    if isinstance(comparison, Diff):
        links = links_of(unopened.root, comparison.base.commit, comparison.head.commit)
    most = budget or REVIEW[form].budget or sys.maxsize
    return REVIEW[form].lines(review, DiffOptions(budget=most, again=again, links=links))


def refuse_places(unopened: Unopened, files: Iterable[str]) -> None:
    """Raise `errors.UsageError` (E_PATH) where `save` would refuse to write."""
    for file in files:
        path_guard.writable(file, unopened.root, config.read_environment(unopened.root))


def save(unopened: Unopened, named: str, pieces: Iterable[str], *, force: bool) -> None:
    """Write pieces of a report to a file. Raises `errors.UsageError` (E_PATH)."""
    root = unopened.root
    path_guard.write(
        named, (f"{piece}\n".encode() for piece in pieces), root, config.read_environment(root), force=force
    )


def _refuse_usage(problem: DuckkbError) -> None:
    if type(problem) is UsageError:
        raise problem
