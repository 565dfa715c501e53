"""What a page may be: read by a parser of HTML5 that is not the one which wrote it (Lexbor), and held against lists of what is allowed.

What stands in a box (an element whose `dir` is `auto`, which also keeps the direction of its text to itself) is of a record, a commit or a
file: Markdown at most. All else is the page's own, and is the same whatever the records say: its `skeleton`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

_TEXT = {
    "a",
    "b",
    "br",
    "code",
    "del",
    "em",
    "i",
    "ins",
    "kbd",
    "mark",
    "s",
    "small",
    "span",
    "strong",
    "sub",
    "sup",
    "time",
    "abbr",
    "q",
}
BOXED = _TEXT | {
    "blockquote", "div", "dd", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "table", "tbody", "td", "th", "thead",
    "tr", "ul",
}  # fmt: skip
"""Elements that may stand in a box."""
OWN = BOXED | {
    "article", "aside", "body", "button", "caption", "details", "fieldset", "figcaption", "figure", "footer", "form", "head", "header", "html",
    "input", "label", "legend", "link", "main", "meta", "meter", "nav", "option", "output", "progress", "script", "section", "select", "summary",
    "textarea", "tfoot", "title", "circle", "g", "line", "path", "polygon", "polyline", "rect", "svg", "text", "tspan", "col", "colgroup", "optgroup",
}  # fmt: skip
"""And on pages besides: forms, and drawings that stand still."""
BOXED_ATTRIBUTES = {
    "class",
    "dir",
    "href",
    "rel",
    "start",
    "target",
    "title",
    "lang",
    "data-open",
    "data-within",
    "aria-current",
    "aria-label",
}
_DRAWN = {
    "viewbox",
    "d",
    "cx",
    "cy",
    "r",
    "x",
    "y",
    "x1",
    "x2",
    "y1",
    "y2",
    "width",
    "height",
    "points",
    "transform",
    "text-anchor",
    "fill-opacity",
}
OWN_ATTRIBUTES = BOXED_ATTRIBUTES | _DRAWN | {
    "action", "autocomplete", "autofocus", "charset", "checked", "cols", "colspan", "content", "datetime", "disabled", "for", "hidden", "id",
    "inputmode", "list", "max", "maxlength", "method", "min", "multiple", "name", "open", "pattern", "placeholder", "readonly", "required", "role",
    "rows", "rowspan", "scope", "selected", "size", "spellcheck", "src", "step", "tabindex", "type", "value", "wrap", "high", "low", "optimum", "span",
}  # fmt: skip
_KEPT = {
    "charset",
    "class",
    "hidden",
    "lang",
    "method",
    "open",
    "rel",
    "role",
    "rows",
    "scope",
    "src",
    "target",
    "type",
    "dir",
    "tabindex",
}
"""Attributes whose values no record has a part in."""
_REORDERING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NUMBERS = re.compile(r"[0-9a-f]{16,}|\d+")
_PLACES = re.compile(r"/web/[a-z/_-]*(\?|#|$)|#|$")
_ELSEWHERE = re.compile(r"(https?|mailto):", re.IGNORECASE)
_STATIC = re.compile(r"/web/static/[0-9a-f]{16}/[a-z_]+\.(css|js|svg)")
POLICY: Mapping[str, str] = {
    "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:", "connect-src": "'self'",
    "form-action": "'self'", "frame-ancestors": "'none'", "base-uri": "'none'", "require-trusted-types-for": "'script'",
    "trusted-types": "duckkb",
}  # fmt: skip
"""The content security policy of every answer."""
_HEADERS = {
    "x-content-type-options": "nosniff", "referrer-policy": "same-origin", "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin", "permissions-policy": "camera=(), geolocation=(), microphone=()",
}  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """A page that is as it may be: its skeleton, the addresses of this server that it leads to, in order, its forms, and its text.
    `is_page`: it has a head of its own, and is no part of another."""

    skeleton: tuple[Any, ...]
    links: tuple[str, ...] = ()
    forms: tuple["Form", ...] = ()
    text: str = ""
    is_page: bool = False
    boxes: int = 0


@dataclass(frozen=True)
class Form:
    """A form that is sent by POST: where to, and the names of its fields with what stands in them."""

    action: str
    fields: Mapping[str, str] = field(default_factory=dict)


def judged(answer: Any) -> Judged:
    """An answer of the pages (httpx), once its headers and all that stands in it are allowed. Raises AssertionError."""
    _headers(answer)
    kind = answer.headers.get("content-type", "")
    if answer.status_code in (303, 307):
        location = answer.headers["location"]
        assert location.startswith("/web/") and location.isascii() and location.isprintable(), location
        return Judged((answer.status_code, _masked_address(location)))
    if kind == "application/json":
        return _json(answer)
    assert kind == "text/html; charset=utf-8", kind
    return _html(answer)


def _headers(answer: Any) -> None:
    pairs = [one.strip().partition(" ") for one in answer.headers.get("content-security-policy", "").split(";")]
    assert {name: value for name, _, value in pairs} == POLICY, pairs
    assert len(pairs) == len(POLICY), "said twice"
    for name, value in _HEADERS.items():
        assert answer.headers.get(name) == value, (name, answer.headers.get(name))
    assert answer.headers.get("cache-control") == "no-store", answer.headers
    more = answer.headers.keys() - _HEADERS.keys()
    assert more <= {"cache-control", "content-length", "content-security-policy", "content-type", "location", "retry-after", "set-cookie",
                    "x-request-id", "www-authenticate", "allow"}, more  # fmt: skip


def _json(answer: Any) -> Judged:
    told = answer.json()
    links = tuple(_links_in(told))
    for one in links:
        assert _PLACES.match(one), one
    return Judged((answer.status_code, "json", *sorted(told)), links, text=json.dumps(told, ensure_ascii=False))


def _links_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (one for name, one in value.items() if name in ("link", "href") and isinstance(one, str))
        value = [*value.values()]
    for one in value if isinstance(value, list) else ():
        yield from _links_in(one)


def _html(answer: Any) -> Judged:
    text = answer.content.decode("utf-8")
    parser = LexborHTMLParser(text)
    reader = _Reader()
    root = parser.root
    assert root is not None
    skeleton = (answer.status_code, *reader.read(root, is_boxed=False))
    is_page = text.startswith("<!doctype html>")
    if is_page:
        assert reader.counts("html", "head", "body", "title", "main") == [1] * 5, "a page has one of each"
        assert reader.scripts == 1, reader.scripts
        title = parser.css_first("title")
        said = title.text() if title is not None else ""
        assert said.endswith(" · duckkb") and not _REORDERING.search(said), said
    else:
        assert reader.scripts == 0
    whole = parser.text(separator=" ") if parser.root else ""
    return Judged(skeleton, tuple(reader.links), tuple(reader.forms), whole, is_page, reader.boxes)


class _Reader:
    """Reads one page, element by element."""

    def __init__(self) -> None:
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.seen: list[str] = []
        self.scripts = self.boxes = 0

    def counts(self, *tags: str) -> list[int]:
        return [self.seen.count(tag) for tag in tags]

    def read(self, node: LexborNode, is_boxed: bool) -> list[Any]:
        """What an element is, and what stands in it; of a box only that it is one."""
        waiting, found = [(node, is_boxed)], list[Any]()
        while waiting:
            one, boxed = waiting.pop()
            tag = str(one.tag)
            if tag in ("-text", "-comment", "-doctype", "-undef"):
                self._loose(one, tag, boxed)
                continue
            given = {name.lower(): value or "" for name, value in one.attributes.items()}
            self._element(one, tag, given, boxed)
            begins = not boxed and given.get("dir") == "auto" and tag not in ("input", "textarea")
            if not boxed:
                found.append(("box",) if begins else (tag, *_own(given)))
            self.boxes += begins
            children = [*one.iter(include_text=True)]
            waiting += [(child, boxed or begins) for child in reversed(children)]
            if not boxed and not begins and children:
                found.append(len([child for child in children if not str(child.tag).startswith("-")]))
        return found

    def _loose(self, one: LexborNode, tag: str, boxed: bool) -> None:
        assert tag != "-comment", one.html
        if tag == "-text" and not boxed:
            text = one.text(deep=False) or ""
            assert not _REORDERING.search(text) or _is_held(one), f"reorders what stands around it: {text!r}"

    def _element(self, one: LexborNode, tag: str, given: dict[str, str], boxed: bool) -> None:
        if tag != "title" or one.parent is None or one.parent.tag == "head":  # drawings have titles of their own
            self.seen.append(tag)
        assert tag in (BOXED if boxed else OWN), f"<{tag}> {given}"
        names = BOXED_ATTRIBUTES if boxed else OWN_ATTRIBUTES
        wrong = [
            name
            for name in given
            if name not in names and not (not boxed and re.fullmatch(r"(data|aria)-[a-z-]+", name))
        ]
        assert not wrong, (tag, given)
        match tag:
            case "script":
                assert _STATIC.fullmatch(given["src"]) and given["type"] == "module" and not (one.text() or ""), given
                self.scripts += 1
            case "link":
                assert (given["rel"], given["href"]) == ("icon", "data:,") or (
                    given["rel"] == "stylesheet" and _STATIC.fullmatch(given["href"])
                ), given
            case "meta":
                assert given.keys() in ({"charset"}, {"name", "content"}), given
                assert given.get("name") in (None, "viewport", "color-scheme"), given
            case "form":
                self._form(one, given)
        self._leads(tag, given, boxed)

    def _form(self, one: LexborNode, given: dict[str, str]) -> None:
        assert re.fullmatch(r"/web/[a-z/_-]+(\?.*)?", given["action"]), given
        fields = {str(own.attributes.get("name")): own.attributes.get("value") or "" for own in one.css("input, textarea, select, button")
                  if own.attributes.get("name")}  # fmt: skip
        if given.get("method") == "post":
            assert re.fullmatch("[0-9a-f]{64}", fields.pop("proof", "")), (given, fields)
            self.forms.append(Form(given["action"], fields))
        else:
            assert "proof" not in fields, given

    def _leads(self, tag: str, given: dict[str, str], boxed: bool) -> None:
        for name in ("data-part", "data-picture"):
            if name in given:
                assert _PLACES.match(given[name]), given
                self.links.append(given[name])
        if tag != "a" or "href" not in given:
            assert tag in ("a", "link") or "href" not in given, (tag, given)
            return
        address = given["href"]
        if _PLACES.match(address):
            assert "target" not in given, given
            if not address.startswith("#"):
                self.links.append(address)
            return
        assert _ELSEWHERE.match(address), given
        assert urlsplit(address).scheme in ("http", "https", "mailto"), given
        assert given.get("target") == "_blank" and {"noopener", "noreferrer"} <= set(given.get("rel", "").split()), (
            given
        )


def _is_held(one: LexborNode) -> bool:
    """Whether a text is one line's own: no other stands in the same paragraph of the page."""
    parent = one.parent
    return parent is not None and (
        parent.tag in ("title", "option", "textarea") or parent.attributes.get("dir") == "auto"
    )


def _own(given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Attributes without what is of records in them."""
    return sorted((name, _masked(name, value)) for name, value in given.items())


def _masked(name: str, value: str) -> str:
    if name in ("href", "action", "data-part", "data-picture"):
        return _masked_address(value)
    if name in ("name", "for", "id"):
        return _NUMBERS.sub("N", value) if re.fullmatch(r"[a-z0-9._-]*", value) else "?"
    return _NUMBERS.sub("N", value) if name in _KEPT else "?"


def _masked_address(address: str) -> str:
    """Of an address of this server the page and what is said to it, without the values."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return "elsewhere"
    return f"{parts.path}?{sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)})}"
