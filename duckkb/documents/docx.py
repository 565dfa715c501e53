"""Reads DOCX: mammoth turns it into HTML; what mammoth leaves out is added to the XML before, or to the text
after.

Rewrites the XML of a DOCX (ISO/IEC 29500): replaces elements that mammoth cannot read by elements that it can."""

import re
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from xml.etree import ElementTree as Tree
from xml.etree.ElementTree import Element
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile, ZipInfo

from duckkb.documents import html_page
from duckkb.documents.extraction_result import FileText, clean_text, one_line, truncate_text

_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_VML = "{urn:schemas-microsoft-com:vml}"
_UNREAD = (b"ruby", b"oMath", b"AlternateContent")
_NOT_SHOWN = frozenset({"Fallback", "moveFrom"})


def is_harmless(content: bytes) -> bool:
    """Return whether the content is XML without a document type: no entity expands, and none names a file. Expat
    bounds the rest.
    """
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, ValueError):
        return False
    return True


def _refuse(*declaration: object) -> None:
    raise ValueError("a document type")


def local(node: Element) -> str:
    return node.tag.rpartition("}")[2]


def plainer(content: bytes) -> bytes:
    """Rewrite a part so that equations, annotated characters and text boxes become runs of text in their places."""
    if not any(name in content for name in _UNREAD):
        return content
    root = Tree.fromstring(content)
    word = root.tag.rpartition("}")[0] + "}"
    for parent in list(root.iter()):
        for at, child in enumerate(list(parent)):
            make = _MADE.get(local(child))
            replacement = make(child, word) if make else None
            if replacement is not None:
                replacement.tail = child.tail
                parent[at] = replacement
    return bytes(Tree.tostring(root, "utf-8"))


def paragraphs(content: bytes) -> Iterator[str]:
    """Yield the text of each paragraph of a part; skip empty paragraphs."""
    for paragraph in _iter_visible_nodes(Tree.fromstring(content)):
        if local(paragraph) == "p":
            nodes = _iter_visible_nodes(paragraph, _NOT_SHOWN | {"p"})  # a text box has separate paragraphs
            text = "".join(node.text or "" for node in nodes if local(node) == "t").strip()
            if text:
                yield text


def count_shown(content: bytes) -> int:
    """Count the letters and digits of a part that a reader sees."""
    root = Tree.fromstring(content)
    return sum(sum(map(str.isalnum, node.text or "")) for node in _iter_visible_nodes(root) if local(node) == "t")


def _iter_visible_nodes(root: Element, without: frozenset[str] = _NOT_SHOWN) -> Iterator[Element]:
    """Yield the nodes of a part in order, without duplicates of the same content and without moved text."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in reversed(node) if local(child) not in without)


def _run(text: str, word: str) -> Element:
    run = Element(f"{word}r")
    Tree.SubElement(run, f"{word}t").text = text
    return run


def _convert_ruby(node: Element, word: str) -> Element:
    """Convert annotated characters to characters followed by their reading, inside a run."""
    texts = {local(part): "".join(text_node.text or "" for text_node in part.iter(f"{word}t")) for part in node}
    element = Element(f"{word}t")
    element.text = f"{texts.get('rubyBase', '')}({texts.get('rt', '')})"
    return element


def _convert_boxes(node: Element, word: str) -> Element | None:
    """Convert text boxes that exist only in the newer form to the older form, which mammoth reads."""
    fallback = next((element for element in node if local(element) == "Fallback"), None)
    boxes = [element for part in node if local(part) == "Choice" for element in part.iter(f"{word}txbxContent")]
    if not boxes or (fallback is not None and next(fallback.iter(f"{word}txbxContent"), None) is not None):
        return None
    picture = Element(f"{word}pict")
    Tree.SubElement(picture, f"{_VML}textbox").extend(boxes)
    return picture


def _convert_equation(node: Element, word: str) -> Element:
    return _run(f" {_format_linear(node)} ", word)


_MADE: dict[str, Callable[[Element, str], Element | None]] = {
    "ruby": _convert_ruby, "oMath": _convert_equation, "oMathPara": _convert_equation, "AlternateContent": _convert_boxes,
}  # fmt: skip


def _format_linear(node: Element) -> str:
    """Format an equation on one line in UnicodeMath: `a/b`, `x^2`, `x_i`, `√(x)`."""
    if local(node) == "t":
        return node.text or ""
    part = {local(child): child for child in node}
    form = local(node)
    if form == "f" and "num" in part and "den" in part:
        return f"{_format_group(part['num'])}/{_format_group(part['den'])}"
    if form == "rad" and "e" in part:
        return f"√({_format_linear(part['e'])})"
    if form == "nary":
        sign = node.find(f"{_MATH}naryPr/{_MATH}chr")
        character = "" if sign is None else sign.get(f"{_MATH}val", "")
        return f"{character or '∫'}{_format_scripts(part)} {_format_linear(part['e']) if 'e' in part else ''}"
    if form == "d":
        return f"({', '.join(_format_linear(child) for child in node if local(child) == 'e')})"
    if "e" in part and ("sub" in part or "sup" in part):
        return f"{_format_linear(part['e'])}{_format_scripts(part)}"
    return "".join(_format_linear(child) for child in node)


def _format_scripts(part: dict[str, Element]) -> str:
    return "".join(f"{sign}{_format_group(part[name])}" for name, sign in (("sub", "_"), ("sup", "^")) if name in part)


def _format_group(node: Element) -> str:
    text = _format_linear(node)
    return text if len(text) <= 1 else f"({text})"


_OLE = bytes.fromhex("D0CF11E0A1B11AE1")
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_MOST_PARTS = 10_000
_MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes of XML that a file may unpack to; pictures and the like are never unpacked."""
_MOST_TURNED = 6 * 1024 * 1024
"""Bytes of XML that are converted to Markdown, which takes 2.5 s for a million; of a larger file only bare
paragraphs are read.
"""
_READ = re.compile(
    r"(?!customXml/|docProps/(?!core)|.*/(?:theme|settings|webSettings|fontTable|glossary)\b).*\.(?:xml|rels)\Z"
)
_BESIDE = re.compile(r"word/(?:(?:header|footer)\d*|diagrams/data\d*)\.xml\Z")
_BODY = re.compile(r"(?:word/)?document\d*\.xml\Z")
_REWRITTEN = re.compile(r"word/(?:document|footnotes|endnotes|comments)\d*\.xml\Z")
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='title'] => h1:fresh
comment-reference => sup
"""
_LEAST_FOUND = 0.97
"""The least share of the document's letters and digits in the result; below it, text was lost for an unknown reason."""


class TooLarge(Exception):
    """A file that unpacks to more bytes than may be read."""


def read(raw: bytes) -> FileText:
    """Return the text of a DOCX as Markdown: body, notes, comments and text boxes, then page headers, footers and
    diagrams.

    `degraded` says that parts may be missing. Raises the errors of zipfile and of the XML parser for a damaged file.
    """
    if raw.startswith(_OLE):
        return FileText(warnings=("encrypted" if _ENCRYPTED_PACKAGE in raw else "failed",))
    warnings: list[str] = []
    with ZipFile(BytesIO(raw)) as archive:
        infos = _select_parts(archive)
        if any(item.flag_bits & 1 for item in infos):
            return FileText(warnings=("encrypted",))
        try:
            parts = dict(_iter_parts(archive, infos, warnings))
        except TooLarge:
            return FileText(warnings=("too_large",))
    letter_count = sum(count_shown(parts[name]) for name in parts if _BODY.match(name))
    text = _read_body(parts, warnings)
    beside = list(
        dict.fromkeys(line for name in sorted(parts) if _BESIDE.match(name) for line in paragraphs(parts[name]))
    )
    if sum(map(str.isalnum, text)) < _LEAST_FOUND * letter_count:
        warnings.append("degraded")
    whole = "\n\n".join(clean_text(item) for item in (text, *beside) if item)
    if not whole:
        warnings.append("empty")
    return FileText(truncate_text(whole, warnings), _read_title(parts), warnings=tuple(dict.fromkeys(warnings)))


def _read_body(parts: dict[str, bytes], warnings: list[str]) -> str:
    """Return body, notes and comments as Markdown. Returns their bare paragraphs with a warning if they are too
    large or if mammoth fails: over a missing link, picture, note or comment, or over a style without a name.
    """
    if sum(map(len, parts.values())) <= _MOST_TURNED:
        try:
            return _convert_to_markdown(parts)
        except MemoryError:
            raise
        except Exception:  # mammoth has no error class of its own
            if not any(map(_BODY.match, parts)):
                raise  # no DOCX at all
    warnings.append("degraded")
    return "\n\n".join(line for name in sorted(parts) if _REWRITTEN.match(name) for line in paragraphs(parts[name]))


def _convert_to_markdown(parts: dict[str, bytes]) -> str:
    import mammoth

    no_pictures = mammoth.images.img_element(lambda image: {"src": ""})
    html = mammoth.convert_to_html(_pack_parts(parts), style_map=_STYLES, convert_image=no_pictures).value
    return html_page.markdown(html)[1]


def _select_parts(archive: ZipFile) -> list[ZipInfo]:
    """Select the parts to read; of several with the same name the last."""
    infos_by_name = {info.filename: info for info in archive.infolist()}
    return [info for name, info in infos_by_name.items() if _READ.match(name)]


def _iter_parts(archive: ZipFile, infos: list[ZipInfo], warnings: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the simplified XML of each part by name; skip damaged parts with a warning. Raises `TooLarge`.

    zipfile unpacks at most the size that a part declares, whatever the part contains.
    """
    if len(infos) > _MOST_PARTS or sum(info.file_size for info in infos) > _MOST_UNPACKED:
        raise TooLarge
    for info in infos:
        try:
            content = archive.read(info)
        except (
            BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
        ):  # NotImplementedError: a compression that zipfile does not support
            content = b""
        if not is_harmless(content):
            warnings.append("degraded")
        else:
            yield info.filename, plainer(content) if _REWRITTEN.match(info.filename) else content


def _pack_parts(parts: dict[str, bytes]) -> BytesIO:
    whole = BytesIO()
    with ZipFile(whole, "w") as archive:
        for name, content in parts.items():
            archive.writestr(ZipInfo(name), content)
    whole.seek(0)
    return whole


def _read_title(parts: dict[str, bytes]) -> str:
    if "docProps/core.xml" not in parts:
        return ""
    root = Tree.fromstring(parts["docProps/core.xml"])
    return next((one_line(element.text or "") for element in root.iter() if local(element) == "title"), "")
