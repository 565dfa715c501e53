"""`impact --model`: the judged questions, asked of the same records with two models."""

from collections.abc import Sequence
from contextlib import ExitStack, closing

from duckkb.actions.folder import OpenOptions, Unopened
from duckkb.actions.impact import ImpactOptions, refuse_limits
from duckkb.actions.models.side import ModelSide, fingerprints, require_trust, side
from duckkb.codes import CODES
from duckkb.engine.base import Base
from duckkb.engine.boot import boot
from duckkb.engine.index.migrate import look
from duckkb.errors import Finding, Refused, Unavailable, UsageError
from duckkb.ontology.load import questions_in
from duckkb.ontology.model import RecordType
from duckkb.review.diff.model import Label
from duckkb.review.impact import impact as judged
from duckkb.review.impact.impact import ImpactReport, JudgedQuestion, RankedAnswer
from duckkb.truth.git import revisions

_EXAMPLE = "`duckkb impact --model ...NEW` for the configured model against NEW, or `--model OLD...NEW`"


def impact_of_models(unopened: Unopened, models: str, options: ImpactOptions) -> ImpactReport:
    """Ask the judged questions of the base as it is with two models, `OLD...NEW`.

    Each is as `config.other_model` takes it; an empty name is the base's own model. Raises as `open` does,
    `errors.UsageError`, `errors.Refused` (E_VECTORS) where a model lacks some vectors, and `errors.Unavailable`
    where it does not answer, since a partial lane cannot be compared.
    """
    refuse_limits(options)
    old, dots, new = models.partition("...")
    if not dots:
        raise UsageError(f"{models!r} names no two models", suggestion=_EXAMPLE)
    opening = OpenOptions(lenient=options.lenient, progress=options.progress)
    sides = [side(unopened, model.strip(), opening) for model in (old, new)]
    raw_questions = [question for document in sides[0].loaded.documents for question in questions_in(document)]
    questions, findings = judged.read(raw_questions), list[Finding]()
    if questions and all(len(fingerprints(sides, kind)) == 1 for kind in _find_types(sides[0], questions)):
        raise UsageError("both models make the same vectors for the questions", suggestion=_EXAMPLE)
    for model_side in sides:
        require_trust(model_side)
    with ExitStack() as closes:
        bases = [closes.enter_context(closing(boot(model_side.wiring))) for model_side in sides]
        for model_side, base in zip(sides, bases, strict=True):
            _refuse_partial(model_side, base, questions)
        before, after = (_ask_model(base, questions, options.k) for base in bases)
        if wrong := bases[0].tree.unreadable:
            message = f"{len(wrong):,} unreadable lines were skipped, the first at {wrong[0].place}"
            findings.append(Finding("W_LENIENT", message, remedy=CODES["W_LENIENT"].remedy))
    rows, prefix = judged.side_by_side(questions, before, after, options.k), revisions.prefix(unopened.root)
    limits = options.fail_on or {}
    return ImpactReport(
        Label(sides[0].name), Label(sides[1].name), options.k, rows, (), limits, tuple(findings), prefix
    )


def _find_types(model_side: ModelSide, questions: Sequence[JudgedQuestion]) -> list[RecordType]:
    """Return the types of the questions in which texts have vectors."""
    kinds = (model_side.wiring.ontology.find(name) for name in sorted({question.type for question in questions}))
    return [kind for kind in kinds if kind is not None and kind.has_text_vectors]


def _refuse_partial(model_side: ModelSide, base: Base, questions: Sequence[JudgedQuestion]) -> None:
    """Raise `errors.Refused` where texts that a question may find have no vector of the model."""
    migration = look(base, _find_types(model_side, questions))
    if pending := migration.built.pending:
        message = (
            f"{pending:,} of {migration.texts:,} texts have no vector of {model_side.name} yet, so nothing is compared"
        )
        remedy = model_side.command("duckkb index migrate --to") if model_side.model else "duckkb index build"
        raise Refused(message, code="E_VECTORS", suggestion=remedy)


def _ask_model(base: Base, questions: Sequence[JudgedQuestion], k: int) -> Sequence[RankedAnswer | None]:
    """Return the answers with one model, without changing what is stored for the configured model."""
    base.in_memory = True
    answers = judged.ask(base, questions, k)
    if degradation := next((answer.degraded for answer in answers if answer is not None and answer.degraded), ""):
        message = f"with {base.settings.embedding.model} not every question got an answer: {degradation}"
        raise Unavailable(message, code="E_MODEL", suggestion="correct the model, then compare again")
    return answers
