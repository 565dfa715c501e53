"""Reads a file as a record: its fields, its problems, and the files that it links to.

Decides which files of a folder are the documents of a collection.

Finds the documents of a collection that a wiki link names.

Decodes the bytes of a file: by their byte order mark, as UTF-8, else by a guess that is reported."""

import codecs
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from posixpath import dirname, normpath
from typing import Any
from unicodedata import normalize

from msgspec import Struct
from msgspec.structs import replace

from duckkb.documents import markdown
from duckkb.documents.extraction_result import FORMATS
from duckkb.documents.glob import IgnoreFile
from duckkb.ontology.model import DocumentSource, Extraction
from duckkb.ontology.yaml_source import read_yaml
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT

ALWAYS_IGNORED = frozenset({"node_modules", ".git", ".cache", "vendor", "dist", "build", ".duckkb"})
"""Names of folders that never hold documents."""
NOT_DOCUMENTS = frozenset({"data", "ontology"})
"""Folders of the base itself: truth and configuration."""
_read_lines = lru_cache(64)(IgnoreFile)


def is_document(source: DocumentSource, path: str) -> bool:
    """Return whether a file is a document, by its path in the folder of the source.

    >>> from duckkb.ontology.model import DocumentSource
    >>> guide = DocumentSource("docs", ("**/*.md",), ("drafts/",))
    >>> is_document(guide, "a/b.md"), is_document(guide, "drafts/c.md"), is_document(guide, "dist/d.md")
    (True, False, False)
    """
    return not exclusion(source, path)


def exclusion(source: DocumentSource, path: str) -> str:
    """Return why a file is not a document: a reason of `folder_exclusion`, `pattern`, or `ignore` of the
    definition; empty if it is one.
    """
    *folders, name = path.split("/")
    if reason := _find_exclusion(source, folders):
        return reason
    if name.startswith(".") and not source.hidden:
        return "hidden"
    if not matches(source.pattern, path):
        return "pattern"
    return "ignore" if matches(source.ignore, path) else ""


def folder_exclusion(source: DocumentSource, path: str) -> str:
    """Return why a folder holds no documents, by its path in the folder of the source: `hidden` or a `reserved`
    name; empty if it may hold some.
    """
    return _find_exclusion(source, path.split("/"))


def _find_exclusion(source: DocumentSource, folders: list[str]) -> str:
    if not ALWAYS_IGNORED.isdisjoint(folders) or (source.path == "." and folders and folders[0] in NOT_DOCUMENTS):
        return "reserved"
    return "hidden" if not source.hidden and any(folder.startswith(".") for folder in folders) else ""


def matches(lines: tuple[str, ...], path: str) -> bool:
    """Return whether lines in the form of .gitignore match a path."""
    return _read_lines(lines).covers(path)


def find_inner_path(source: DocumentSource, path: str) -> str | None:
    """Return the path of a document inside the source's folder, or None if it lies elsewhere; `path` is that of a
    part. The result is in Unicode's form NFC, like identities, whatever form the file's name has.
    """
    inner = find_inner_file(source, path)
    return inner if inner is None else unicodedata.normalize("NFC", inner)


def find_inner_file(source: DocumentSource, path: str) -> str | None:
    """Return the path inside the source's folder as `find_inner_path` does, but with names as the file system has
    them.
    """
    if source.path == ".":
        return None if path.startswith("../") else path
    start = f"{source.path}/"
    return path.removeprefix(start) if path.startswith(start) else None


def place_path(source: DocumentSource, path: str) -> str:
    """Return the part's path for a path inside the source's folder; the inverse of `find_inner_path`."""
    return path if source.path == "." else f"{source.path}/{path}"


def prefixes(path: str) -> Iterator[str]:
    """Yield the folders above a document, outermost first, then the document itself.

    >>> [*prefixes("a/b/c.md")]
    ['', 'a', 'a/b', 'a/b/c.md']
    """
    yield ""
    at = -1
    while (at := path.find("/", at + 1)) >= 0:
        yield path[:at]
    yield path


def contexts(source: DocumentSource, path: str) -> list[str]:
    """Return the descriptions of a document's folders, from the general to the specific."""
    return [source.contexts[prefix] for prefix in prefixes(path) if prefix in source.contexts]


_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GUESSED_FROM = 1 << 16
# Bytes that no text has in any encoding; files with them are not text.
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MOST_CONTROLS = 0.01


def read_byte_order_mark(raw: bytes) -> str:
    r"""Return the encoding that a byte order mark names, in the variant that skips the mark; empty without a mark.

    >>> read_byte_order_mark(b"\xef\xbb\xbfid,name"), read_byte_order_mark(b"id,name")
    ('utf-8-sig', '')
    """
    name = next((name for mark, name in _MARKS if raw.startswith(mark)), "")
    return "utf-8-sig" if name == "utf-8" else name[:6]  # the mark itself gives the byte order


def decode_text(raw: bytes) -> tuple[str, str] | None:
    """Return the text of a file and the guessed encoding (empty if it is certain); None if the file is not text.

    Line ends stay those of the file; in a file without LF each CR becomes LF. Undecodable bytes of a guessed
    encoding become U+FFFD.
    """
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return _check_text(raw[len(mark) :].decode(name, "replace"), "")
    try:
        return _check_text(raw.decode("utf-8"), "")
    except UnicodeDecodeError:
        pass
    name = _guess_encoding(raw)
    return _check_text(raw.decode(name, "replace"), name) if name else None


def _guess_encoding(raw: bytes) -> str:
    try:
        import chardet  # of the extra `documents`
    except ImportError:
        return "" if b"\0" in raw else "cp1252"
    name = chardet.detect(raw[:_GUESSED_FROM])[
        "encoding"
    ]  # the best guess even with low confidence: short texts of one code page score .1
    if not name:
        return "" if b"\0" in raw else "cp1252"
    try:
        return codecs.lookup(name).name
    except LookupError:
        return ""


def _check_text(text: str, encoding: str) -> tuple[str, str] | None:
    if "\n" not in text:
        text = text.replace("\r", "\n")
    controls = len(_CONTROLS.findall(text))
    return None if controls > max(1, len(text) * _MOST_CONTROLS) else (text, encoding)


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
    from duckkb.documents import extraction_result  # needed only by document collections

    endings = [line.rpartition("/")[2].rpartition(".")[2] for line in pattern if not line.startswith("!")]
    if all(ending.isalnum() for ending in endings):
        forms = {form if (form := format_of(f".{ending}")) in FORMATS else "" for ending in endings}
    else:
        forms = {"", *FORMATS}
    return "; ".join(extraction_result.extractor(form) for form in sorted({"", *forms}))


def read_document(path: str, raw: bytes, how: Extraction = _PLAIN) -> Extracted:
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
    from duckkb.documents.extraction import extract_file_text  # imports everything that starts a process

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


_ATTACHMENTS = frozenset(
    [
        "png",
        "jpg",
        "jpeg",
        "gif",
        "bmp",
        "svg",
        "webp",
        "avif",
        "ico",
        "heic",
        "mp3",
        "wav",
        "m4a",
        "ogg",
        "oga",
        "flac",
        "mp4",
        "mov",
        "mkv",
        "webm",
        "avi",
        "pdf",
        "docx",
        "xlsx",
        "pptx",
        "odt",
        "zip",
        "canvas",
        "base",
        "excalidraw",
    ]
)


def is_attachment(name: str) -> bool:
    """Return whether a link to this name leads to a picture or another attachment; those are looked up only as
    documents.

    >>> is_attachment("map.png"), is_attachment("node.js"), is_attachment("v1.2")
    (True, False, False)
    """
    return name.rpartition(".")[2].lower() in _ATTACHMENTS


class WikiNames:
    """The documents of a collection by the names that links use. `aliases` holds the names that documents give
    themselves, used if no path fits.
    """

    def __init__(self, paths: Iterable[str], aliases: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._paths = frozenset(paths)
        self._by_name: dict[str, list[str]] = {}
        for path in sorted(self._paths):
            for spelling in _list_spellings(path.rpartition("/")[2]):
                self._by_name.setdefault(spelling.casefold(), []).append(path)
        self._aliases = aliases
        self._by_alias: Mapping[str, Sequence[str]] | None = None

    def paths_of(self, source: str, name: str) -> Sequence[str]:
        """Return the documents that a link in the document `source` may mean: the document beside it, else the one
        at this path of the collection, else all whose paths end so, else all that have the name as an alias.
        """
        target = name.strip("/")
        near = self._by_name.get(target.rpartition("/")[2].casefold(), ())
        fitting = [path for path in near if _has_suffix(path, target)]
        exact = [path for path in fitting if _has_suffix(path, target, is_exact=True)]
        folder = dirname(source)
        for place in (f"{folder}/{target}" if folder else target, target):
            for paths in (exact, fitting):
                if at_place := [path for path in paths if _is_at(path, normpath(place))]:
                    return at_place[:1]
        if exact or fitting:
            return exact or fitting
        if self._by_alias is None:
            self._by_alias = {alias.casefold(): paths for alias, paths in self._aliases().items()}
        return self._by_alias.get(target.casefold(), ())


def _list_spellings(path: str) -> tuple[str, ...]:
    """List the ways in which links write a path; Markdown files also without the extension."""
    return (path, path.rpartition(".")[0]) if format_of(path) == "md" else (path,)


def _has_suffix(path: str, name: str, *, is_exact: bool = False) -> bool:
    if not is_exact:
        path, name = path.casefold(), name.casefold()
    return any(f"/{spelling}".endswith(f"/{name}") for spelling in _list_spellings(path))


def _is_at(path: str, place: str) -> bool:
    return place.casefold() in (spelling.casefold() for spelling in _list_spellings(path))
