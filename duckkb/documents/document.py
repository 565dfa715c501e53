"""Reads a file as a record: its fields, its problems, and the files that it links to."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any
from unicodedata import normalize

from msgspec import Struct
from msgspec.structs import replace

from duckkb.documents import markdown
from duckkb.documents.extract.result import FORMATS
from duckkb.documents.text import decode_text
from duckkb.ontology.model import Extraction
from duckkb.ontology.source import read_yaml
from duckkb.records import CREATED_AT, ID, UPDATED_AT

PATH = "path"
OWN = frozenset({
    PATH, "title", "text", "format", "size", "headings", "pages", "text_line", "warnings", "front_matter_problems",
    ID, CREATED_AT, UPDATED_AT, "_type", "_etag",
})  # fmt: skip
"""The document's own fields; front matter of the same name is kept under `front_` and its name."""
DERIVED = frozenset({"format", "size", "headings", "pages", "text_line"})
"""The fields that are derived from its text and its name."""

WARNINGS = (
    "disabled", "failed", "degraded", "encrypted", "no_text", "truncated", "encoding_guessed", "unsupported_extension",
    "too_large", "empty", "timeout", "front_matter",
)  # fmt: skip
"""All warnings about a file."""
_NOT_WHOLE = frozenset(WARNINGS) - {"encoding_guessed", "empty", "front_matter"}

_MARKDOWN = frozenset({"md", "markdown", "mdx", "qmd"})
_TEXT = frozenset({"txt", "text", "rst", "adoc", "org", "log", "csv", "tsv", "json", "jsonl", "ndjson"})
_CODE = frozenset({
    "py", "pyi", "js", "jsx", "mjs", "cjs", "ts", "tsx", "go", "rs", "java", "kt", "c", "h", "cc", "cpp", "hpp", "cs",
    "rb", "php", "swift", "scala", "sh", "bash", "zsh", "ps1", "sql", "r", "jl", "lua", "pl", "ex", "exs", "erl",
    "hs", "clj", "dart", "vue", "css", "scss", "toml", "yaml", "yml", "ini", "cfg", "proto", "graphql", "tf", "nix",
    "zig", "xml",
})  # fmt: skip
_HEADING_LINK = re.compile(r"\[([^\[\]]*)\]\([^()]*\)")
_MOST_PROBLEMS = 20
_PLAIN = Extraction()


class Extracted(Struct, frozen=True):
    """The content of a file: its fields without the path, its links to other files, and warnings by code. Links
    are paths like the file's own, in the order of the text, with the lines that hold them.
    """

    fields: dict[str, Any]
    links: dict[str, list[int]] = {}


def is_whole(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields hold all text of the file."""
    return _NOT_WHOLE.isdisjoint(fields.get("warnings", ()))


def format_of(path: str) -> str:
    """Return the format of a file by its name: md, text, code, html, pdf, docx, or empty if the file is not read."""
    ending = path.rpartition("/")[2].rpartition(".")[2].lower()
    if ending in _MARKDOWN:
        return "md"
    if ending in ("html", "htm", "xhtml"):
        return "html"
    if ending in _TEXT:
        return ending if ending in ("csv", "json") else "text"
    if ending in _CODE:
        return "code"
    return ending if ending in FORMATS else ""


def extractor(pattern: Iterable[str]) -> str:
    """Return a name for how the files that a pattern matches are read here, with the versions of the installed
    libraries. If the name changes, all of these files are read again.

    >>> extractor(["**/*.md"]) == extractor(["notes/*.txt"]), extractor(["*.md"]) == extractor(["*.md", "*.p*"])
    (True, False)
    """
    from duckkb.documents.extract import libraries  # needed only by document collections

    endings = [line.rpartition("/")[2].rpartition(".")[2] for line in pattern if not line.startswith("!")]
    if all(ending.isalnum() for ending in endings):
        forms = {form if (form := format_of(f".{ending}")) in FORMATS else "" for ending in endings}
    else:
        forms = {"", *FORMATS}
    return "; ".join(libraries.extractor(form) for form in sorted({"", *forms}))


def read(path: str, raw: bytes, how: Extraction = _PLAIN) -> Extracted:
    """Read a file of a collection; `path` is its path there. Never raises: unreadable content becomes a warning."""
    form, warnings = format_of(path), list[str]()
    document, text = None, ""
    if len(raw) > how.largest:
        warnings.append("too_large")
    elif not raw.strip():
        warnings.append("empty")
    elif not form:
        warnings.append("unsupported_extension")
    elif form in FORMATS:
        document = _extract_file(path, form, raw, how, warnings)
    elif (text_result := decode_text(raw)) is None:
        warnings.append("failed")
    else:
        text, is_guess = text_result
        warnings += ["encoding_guessed"] if is_guess else []
    if document is None:
        document = _read_markdown(path, text, warnings) if form == "md" else _read_plain(path, text)
    document.fields.update({"format": form or "other", "size": len(raw)})
    if warnings:
        document.fields["warnings"] = warnings
    return document


def _extract_file(path: str, form: str, raw: bytes, how: Extraction, warnings: list[str]) -> Extracted:
    """Read a file in the extraction process; add headings and links where that process returns Markdown."""
    from duckkb.documents.extract.process import extract_file_text  # imports everything that starts a process

    file_text = extract_file_text(form, raw, how)
    warnings += file_text.warnings
    outline, names = list[markdown.Heading](), list(file_text.headings)
    if form != "pdf":
        outline = [
            replace(heading, text=_HEADING_LINK.sub(r"\1", heading.text).strip())
            for heading in markdown.headings(file_text.text)
        ]
        names = [heading.text for heading in outline if heading.text]
    fields: dict[str, Any] = {
        "title": markdown.title(outline, {"title": file_text.title}, path),
        "text": file_text.text,
    }
    if names:
        fields["headings"] = names
    if file_text.pages:
        fields["pages"] = list(file_text.pages)
    return Extracted(fields, {} if form == "pdf" else _links(path, file_text.text, 0, is_site=True))


def _read_plain(path: str, text: str) -> Extracted:
    return Extracted({"title": path.rpartition("/")[2], "text": text})


def _read_markdown(path: str, text: str, warnings: list[str]) -> Extracted:
    front_text, start = markdown.front_matter(text)
    front, problems = _parse_front_matter(front_text, path)
    if problems:
        warnings.append("front_matter")
    headings = markdown.headings(text, start)
    body = text[start:]
    fields = {name if name not in OWN else f"front_{name}": value for name, value in front.items()}
    fields |= {"title": markdown.title(headings, front, path), "text": body}
    if headings:
        fields["headings"] = [heading.text for heading in headings if heading.text]
    if start:
        fields["text_line"] = text.count("\n", 0, start) + 1
    if problems:
        fields["front_matter_problems"] = problems
    return Extracted(fields, _links(path, text, start))


def _links(path: str, text: str, start: int, *, is_site: bool = False) -> dict[str, list[int]]:
    """Return the lines of links to files by path, and of wiki links by the name as written (`markdown.wiki_end`).
    Links of a web page (`is_site`) that begin with `/` lead into the site that the page comes from. A page has
    no wiki links: brackets in it are text.
    """
    lines_by_place: dict[str, list[int]] = {}
    ends = [item.start() for item in re.finditer("\n", text)]
    for link in sorted(markdown.links(text, start), key=lambda item: item.start):
        if is_site and (link.is_wiki or link.target.startswith("/")):
            continue
        place = _place_of(path, link)
        if place and place != path:
            lines_by_place.setdefault(place, []).append(bisect_left(ends, link.start) + 1)
    return lines_by_place


def _place_of(path: str, link: markdown.Link) -> str | None:
    """Return the path that a link leads to, or the name in a wiki link as written unless it begins with `./` or
    `../`. Returns None for a link to the file itself.
    """
    if not link.is_wiki:
        return markdown.resolve_link(path, link.target)
    if not link.target.startswith(("./", "../")):
        file_name = path.rpartition("/")[2]
        is_own = link.target.casefold() in (file_name.casefold(), file_name.rpartition(".")[0].casefold())
        return None if is_own else markdown.wiki_end(normalize("NFC", link.target))
    return markdown.resolve_link(path, link.target if format_of(link.target) else f"{link.target}.md")


def _parse_front_matter(front_text: str, path: str) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """Parse front matter into its values and its problems: line of the file, field (a JSON pointer) and message.
    Front matter that is not a YAML mapping has no values. A value that YAML parsers disagree about stays the
    text as written.
    """
    if not front_text.strip():
        return {}, []
    document = read_yaml(front_text.encode("utf-8", "replace"), path, with_dates=True)
    problems = [
        {
            "line": (finding.line or 1) + 1,  # behind the line of `---`
            "field": finding.field,
            "message": f"{finding.message}; {finding.remedy}" if finding.remedy else finding.message,
        }
        for finding in document.findings[:_MOST_PROBLEMS]
    ]
    return {name: value for name, value in document.value.items() if name and value is not None}, problems
