"""Finds keys and passwords that somebody wrote into the configuration, without ever repeating them."""

import re
from collections.abc import Iterator
from typing import Any

from duckkb.errors import Finding
from duckkb.ontology.rules import looks_secret
from duckkb.ontology.source import Document, pointer

_SECRET_KEY = re.compile(
    r"(.*[_-])?(api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|secret|token|password|passwd|credentials?)",
    re.IGNORECASE,
)
# Below these keys the names are the user's own: a field called `token` is no secret.
_OWN_NAMES = {"schema", "expected"}
_REMEDY = "remove it, give the provider's key a new value, and name a variable with `global.embedding.api_key_env`"


def secret_findings(document: Document) -> list[Finding]:
    """One finding for each value that looks like a secret, by its form or by the name of its key."""
    message = "looks like a secret; keys come from the environment alone"
    return [
        Finding("E_CONFIG", message, document.path, document.line(place), _nameable(place), _REMEDY)
        for place in _secret_places(document.value, "", True)
    ]


def without_secrets(findings: list[Finding], secrets: list[Finding]) -> list[Finding]:
    """Secrets' findings, and of the others those that cannot repeat one: what speaks of the same line might."""
    hidden = {(finding.path, finding.line) for finding in secrets}
    told = [finding for finding in findings if _nameable(finding.field) == finding.field]
    return [*secrets, *(finding for finding in told if (finding.path, finding.line) not in hidden)]


def _nameable(place: str) -> str:
    """A pointer up to the first step that is a secret itself."""
    steps = place.split("/")
    secret = next((index for index, step in enumerate(steps) if looks_secret(step)), len(steps))
    return "/".join(steps[:secret])


def _secret_places(value: Any, place: str, by_name: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            inside = place + pointer(key)
            is_named = by_name and bool(_SECRET_KEY.fullmatch(key)) and _is_given(item)
            if is_named or looks_secret(key):
                yield inside
            else:
                yield from _secret_places(item, inside, by_name and key not in _OWN_NAMES)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secret_places(item, place + pointer(index), by_name)
    elif isinstance(value, str) and looks_secret(value):
        yield place


def _is_given(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""
