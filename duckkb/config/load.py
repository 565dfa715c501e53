"""config.yaml and ontology/**/*.yaml -> Settings and Ontology, or every problem at once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from duckkb.config.files import read_documents
from duckkb.config.keys import SECTIONS, read_settings
from duckkb.config.secrets import secret_findings, without_secrets
from duckkb.config.sound import recall_schemas
from duckkb.errors import Finding, OntologyError
from duckkb.ontology.load import in_order
from duckkb.ontology.load import load as load_ontology
from duckkb.ontology.model import Ontology
from duckkb.ontology.questions import questions as read_questions
from duckkb.ontology.section import root_section
from duckkb.ontology.source import MAX_FINDINGS, Document
from duckkb.settings import Environment, Settings
from duckkb.values import dataclass


@dataclass(frozen=True)
class Loaded:
    """A base's configuration. `documents` are the files it came from, config.yaml first; `env` what was around it."""

    root: Path
    settings: Settings
    ontology: Ontology
    questions: tuple[Mapping[str, Any], ...]
    documents: tuple[Document, ...]
    env: Environment


def load(root: Path, env: Environment, instead: Mapping[str, bytes | None] | None = None) -> Loaded:
    """Read a base's configuration, with the bytes of some files of ontology/ instead of what stands there (None: as if the
    file were gone). Raises `errors.OntologyError` with all findings of settings and types together, and
    `errors.StateError` (E_NO_KB) where there is no config.yaml."""
    recall_schemas(env)
    documents = read_documents(root, instead or {})
    first, rest = documents[0], documents[1:]
    found: list[Finding] = []
    settings = read_settings(root_section(first, "E_CONFIG", found))
    parts = (first.only(SECTIONS), *rest)
    ontology, wrong = load_ontology(parts)
    questions, doubtful = read_questions(parts, ontology)
    secrets = [finding for document in documents for finding in secret_findings(document)]
    findings = in_order(without_secrets([*found, *wrong, *doubtful], secrets), documents)
    if findings:
        raise _refusal(findings)
    return Loaded(root, settings, ontology, questions, documents, env)


def _refusal(findings: Sequence[Finding]) -> OntologyError:
    codes = {finding.code for finding in findings}
    files = list(dict.fromkeys(finding.path for finding in findings))
    named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    problems = "1 problem" if len(findings) == 1 else f"{len(findings)} problems"
    if len(findings) > MAX_FINDINGS:
        problems = f"more than {MAX_FINDINGS} problems"
    return OntologyError(
        f"{problems} in {named}; nothing was loaded or created",
        code=codes.pop() if len(codes) == 1 else "E_ONTOLOGY",
        suggestion="edit the lines named; config.example.yaml lists every setting",
        findings=tuple(findings[:MAX_FINDINGS]),
    )
