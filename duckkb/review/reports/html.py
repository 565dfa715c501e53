"""A self-contained HTML file. A policy in its head forbids network requests, and every script but its own.

The data is JSON in a block that no browser runs. In it `<` is escaped, so that no data can end the block; the
script inserts it as text, never as markup.
"""

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from duckkb.errors import Finding
from duckkb.review.reports.markup import dumps
from duckkb.rules.invisible import visible

KINDS = {"same": 0, "gone": 1, "new": 2, "cut": 0}
"""The numbers that the script uses for the runs of `diff.words`."""
_HERE = Path(__file__).parent


def document(title: str, data: Iterable[str], script: Path) -> Iterator[str]:
    """Yield a page in pieces: `data` are the pieces of one JSON value as `safe` writes it, `script` draws it."""
    style = (_HERE / "page.css").read_text("utf-8")
    code = "\n".join(path.read_text("utf-8") for path in (_HERE / "page.js", script))
    yield _render_head(title, style, code)
    yield '<script type="application/json" id="data">'
    yield from data
    yield f"</script>\n<script>{code}</script>\n</html>"


def safe(value: Any) -> str:
    """Return JSON that cannot end a block of HTML."""
    return dumps(value).replace("<", "\\u003c")


def convert_finding(one: Finding) -> dict[str, str]:
    """Return a finding as the script shows it."""
    record = f"{one.type} {one.identity}" if one.type else ""
    entries = {"code": one.code, "place": one.place, "record": record, "field": one.field}
    entries |= {"message": one.message, "remedy": one.remedy}
    return {name: visible(text) for name, text in entries.items() if text}


def _render_head(title: str, style: str, script: str) -> str:
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>This page needs JavaScript: its records are shown as they are scrolled to.</p></noscript>
</body>"""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
