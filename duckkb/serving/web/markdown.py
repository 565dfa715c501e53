"""Markdown of records as inert HTML: tags are shown as text, links have safe targets, and no picture is loaded
from elsewhere.
"""

from functools import cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

_SCHEMES = frozenset({"http", "https", "mailto", ""})
_DEEPEST = 20
_LOWEST_HEADING = 6


def html(text: str) -> Markup:
    """Return the HTML of a text in CommonMark with tables and strikethrough."""
    return Markup(_build_reader().render(text))


def is_safe(address: str) -> bool:
    """Return whether a link may have this target: https, http, a mail address, or a path on this server; no
    script.

    >>> is_safe("https://a.b/c"), is_safe("javascript:alert(1)"), is_safe("data:text/html,x"), is_safe("guide/a.md")
    (True, False, False, True)
    """
    try:
        return urlsplit(address.strip()).scheme.lower() in _SCHEMES and not any(
            ord(character) < 33 for character in address.strip()
        )
    except ValueError:
        return False


class _Reader(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return is_safe(url)


@cache
def _build_reader() -> MarkdownIt:
    reader = _Reader("commonmark", {"html": False, "maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    reader.add_render_rule("link_open", _link)
    reader.add_render_rule("image", _render_image)
    for name in ("heading_open", "heading_close"):
        reader.add_render_rule(name, _render_heading)
    for name in ("th_open", "td_open"):
        reader.add_render_rule(name, _render_cell)
    return reader


def _render_cell(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    """Render a cell without its alignment, which is a style."""
    return f"<{tokens[at].tag}>"


def _link(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    """Render a link of a record: it opens in a tab of its own and sends no referrer.

    A relative link has no target here.
    """
    address = str(tokens[at].attrs.get("href", ""))
    if not urlsplit(address).scheme:
        return f'<a class="elsewhere" title="{escape(address)}">'
    return f'<a href="{escape(address)}" target="_blank" rel="noopener noreferrer nofollow ugc">'


def _render_image(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    """Render a picture as a link to it: loading it would tell its server who reads."""
    address, label = str(tokens[at].attrs.get("src", "")), tokens[at].content or "image"
    if not urlsplit(address).scheme:
        return f'<span class="image" title="{escape(address)}">{escape(label)}</span>'
    return (
        f'<a class="image" href="{escape(address)}" target="_blank" rel="noopener noreferrer nofollow ugc">'
        f"{escape(label)}</a>"
    )


def _render_heading(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    """Render a heading two levels below those of the page."""
    level = min(int(tokens[at].tag[1:]) + 2, _LOWEST_HEADING)
    return f"<h{level}>" if tokens[at].nesting == 1 else f"</h{level}>\n"
