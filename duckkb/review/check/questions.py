"""Checks the answers of judged questions: an answer that is no record can never be found."""

from collections.abc import Iterator, Sequence

from duckkb.codes import CODES
from duckkb.engine.base import Base
from duckkb.errors import Finding, UsageError
from duckkb.ontology.load import questions_in
from duckkb.ontology.model import RecordType
from duckkb.ontology.source import Document, pointer
from duckkb.review.impact import impact

_CODE = "W_QUESTION"


def iter_lost_answers(base: Base, documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield a warning for each judged record that a question of these documents expects and the base does not have."""
    for document in documents:
        for number, question in enumerate(impact.read(questions_in(document))):
            kind = base.ontology.find(question.type)
            for name in question.expected if kind is not None else ():
                if kind is not None and not _is_there(base, kind, name):
                    message = f"the question {question.text!r} expects {kind.name} {name}, which does not exist"
                    yield document.finding(
                        _CODE, pointer("questions", number, "expected", name), message, CODES[_CODE].remedy
                    )


def _is_there(base: Base, kind: RecordType, name: str) -> bool:
    try:
        return base.tree.id_of(kind, base.validator(kind).coerce_identity(name)) is not None
    except UsageError:
        return False
