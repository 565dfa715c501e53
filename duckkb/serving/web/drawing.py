"""Renders templates into pages, and serves the files that pages load."""

import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from duckkb.rules.invisible import visible
from duckkb.serving.web.words import LANGUAGES, words

_HERE = Path(__file__).parent
KINDS: Mapping[str, str] = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
"""Media types of files, by ending."""


def draw_page(template: str, values: Mapping[str, Any]) -> str:
    """Render a page. Every value is escaped unless it is markup that this package made."""
    return _load_templates().get_template(template).render(values).encode("utf-8", "replace").decode()


def load() -> None:
    """Read everything that pages are made of."""
    for template in _load_templates().list_templates():
        _load_templates().get_template(template)
    for language in LANGUAGES:
        words(language)
    edition()


def static(root: str, name: str) -> str:
    """Return the address of a file below the pages' root; it includes a digest of all files, so its content never
    changes.
    """
    return f"{root}/static/{edition()}/{name}"


@cache
def files() -> Mapping[str, bytes]:
    """Return the files that pages load, by name."""
    return {path.name: path.read_bytes() for path in sorted((_HERE / "static").iterdir()) if path.suffix in KINDS}


@cache
def edition() -> str:
    """Return a digest of all files."""
    digest = sha256()
    for name, data in files().items():
        digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()[:16]


@cache
def _load_templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["visible"] = lambda value: visible(str(value))
    environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment
