"""Renders templates into pages, and serves the files that pages load.

Markdown of records as inert HTML: tags are shown as text, links have safe targets, and no picture is loaded
from elsewhere.

Marks the terms of a question in a text that it matched, and cuts the part of a long text with them.

The names of records on pages: an identity that actions accept, and a title for people.

The texts of the pages, one catalogue a language: words/LANGUAGE.json."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from msgspec import Struct

from duckkb.index.tokens import fold
from duckkb.ontology.identity import display_names
from duckkb.types.invisible_characters import visible

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


_WORD = re.compile(r"[^\W_]+")
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LEAST_STEM = 3
_MOST_TERMS = 64
_BEFORE = 80


def terms_of(question: str, tokens: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the terms to mark, longest first, folded.

    These are words of the question, and the tokens by which the lexical lane found a record (stems, or runs of
    Chinese characters).
    """
    words = {word.casefold() for word in (*_WORD.findall(question[:2_000]), *tokens)}
    return tuple(sorted((word for word in words if word), key=lambda word: (-len(word), word))[:_MOST_TERMS])


def mark_terms(text: str, terms: Sequence[str]) -> Markup:
    """Return the text as markup, with <mark> around words that are a term, or begin with one of at least three
    letters.

    Accents do not matter.

    >>> mark_terms("Atomic <writes> write", ["write", "atom"])
    Markup('<mark>Atomic</mark> &lt;<mark>writes</mark>&gt; <mark>write</mark>')
    >>> mark_terms("le Café", ["cafe"]), mark_terms("the cafe", ["café"])
    (Markup('le <mark>Café</mark>'), Markup('the <mark>cafe</mark>'))
    """
    pattern = _compile_pattern(terms)
    if pattern is None:
        return escape(text)
    pieces, at = [], 0
    for match in pattern.finditer(text):
        pieces += [escape(text[at : match.start()]), Markup("<mark>%s</mark>") % match[0]]
        at = match.end()
    return Markup("").join([*pieces, escape(text[at:])])


def place_of(text: str, terms: Sequence[str]) -> int:
    """Return the place of the first term; 0 where there is none."""
    pattern = _compile_pattern(terms)
    first = pattern.search(text) if pattern else None
    return first.start() if first else 0


def excerpt(text: str, place: int, length: int = 320) -> str:
    """Return about `length` characters of a text, from shortly before a place on."""
    if len(text) <= length:
        return text
    start = max(0, place - _BEFORE)
    start = text.rfind(" ", max(0, start - 20), start) + 1 if start else 0
    cut = text[start : start + length]
    return ("…" if start else "") + cut + ("…" if start + length < len(text) else "")


def _compile_pattern(terms: Sequence[str]) -> re.Pattern[str] | None:
    """Compile a pattern of the terms: Chinese runs anywhere; other words from their beginning."""
    alternatives = []
    for term in terms:
        body = "".join(_map_accents().get(letter) or re.escape(letter) for letter in fold(term))
        if _HAN.search(term):
            alternatives.append(body)
        else:
            alternatives.append(
                rf"(?<![^\W_]){body}[^\W_]*" if len(term) >= _LEAST_STEM else rf"(?<![^\W_]){body}(?![^\W_])"
            )
    return re.compile("|".join(alternatives), re.IGNORECASE) if alternatives else None


@cache
def _map_accents() -> Mapping[str, str]:
    """Return for each letter a pattern of it with and without accents."""
    forms: dict[str, str] = {}
    for letter in map(chr, (*range(0xC0, 0x250), *range(0x370, 0x530), *range(0x1E00, 0x2000))):
        plain = fold(letter.casefold())
        if plain != letter.casefold() and len(plain) == 1:
            forms[plain] = forms.get(plain, plain) + letter
    return {plain: f"[{letters}]" for plain, letters in forms.items()}


_LONGEST = 200


def identity_of(record: Mapping[str, Any], fields: Sequence[str]) -> str:
    """Return a record's identity as the command line writes it: a scalar, or a JSON array on one line.

    `fields` are the names of the identity fields.

    >>> identity_of({"id": "n1"}, ["id"]), identity_of({"from": "a", "to": "b"}, ["from", "to"])
    ('n1', '["a","b"]')
    """
    parts = [record.get(name) for name in fields]
    if len(parts) == 1 and isinstance(parts[0], str | int):
        return str(parts[0])
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def title_of(record: Mapping[str, Any], identity: str, display: Sequence[str]) -> str:
    """Return the title of a record: its first display field, else its identity, cut to a limited length.

    Comments and the pages of changes use the same title. `display` are the fields that the type declares.

    >>> title_of({"_type": "Rule", "id": "r1", "title": "A", "heading": "B"}, "r1", ["heading"]), title_of({"id": "r1"}, "r1", [])
    ('B', 'r1')
    """
    fields = {name: value for name, value in record.items() if not name.startswith("_")}
    values = (fields[name] for name in display_names(fields, display, identity))
    title = next(
        (label if isinstance(label, str) else json.dumps(label, ensure_ascii=False) for label in values), identity
    )
    return title if len(title) <= _LONGEST else title[:_LONGEST] + "…"


LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
"""The languages by their own names; the first is the default."""
_FOLDER = Path(__file__).parent / "words"
_WEIGHT = re.compile(r"([A-Za-z]{1,8})[A-Za-z0-9-]*\s*(?:;\s*q=([01](?:\.\d{0,3})?))?")


class Words(Struct, frozen=True):
    """The catalogue of a language.

    An entry may have places for values, and forms for one and for several (`{"one", "other"}`, by the value `count`).
    """

    language: str
    entries: Mapping[str, str | Mapping[str, str]]

    def __call__(self, key: str, **values: object) -> str:
        """Return the text of a key with its values. Raises KeyError for a key that no catalogue has."""
        entry = self.entries[key]
        if not isinstance(entry, str):
            entry = entry.get("one" if values.get("count") == 1 else "other") or entry["other"]
        texts = {name: f"{value:,}" if type(value) is int else value for name, value in values.items()}
        return entry.format_map(texts) if texts else entry

    def has(self, key: str) -> bool:
        return key in self.entries

    @property
    def of_scripts(self) -> dict[str, str | Mapping[str, str]]:
        """Return the texts of scripts, without the `js.` of their keys."""
        return {key.removeprefix("js."): entry for key, entry in self.entries.items() if key.startswith("js.")}


@cache
def words(language: str) -> Words:
    """Return the catalogue of one of `LANGUAGES`."""
    return Words(language, json.loads((_FOLDER / f"{language}.json").read_text("utf-8")))


def choose_language(chosen: str, accepted: str) -> str:
    """Return the language of a page: the chosen one, else the first known one of `accepted` (a header
    Accept-Language).

    >>> choose_language("", "de, zh-CN;q=0.8, en;q=0.9"), choose_language("", "zh-TW,zh;q=0.9")
    ('en', 'zh')
    >>> choose_language("zh", "en"), choose_language("xx", "")
    ('zh', 'en')
    """
    if chosen in LANGUAGES:
        return chosen
    parts = (_WEIGHT.fullmatch(item.strip()) for item in accepted[:1_000].split(","))
    ranking = sorted(((float(item[2] or 1), item[1].lower()) for item in parts if item), key=lambda item: -item[0])
    return next((name for weight, name in ranking if weight and name in LANGUAGES), next(iter(LANGUAGES)))


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
