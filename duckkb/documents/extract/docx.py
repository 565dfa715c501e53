"""Reads DOCX: mammoth turns it into HTML; what mammoth leaves out is added to the XML before, or to the text
after.
"""

import re
import zlib
from collections.abc import Iterator
from io import BytesIO
from xml.etree import ElementTree as Tree
from zipfile import BadZipFile, ZipFile, ZipInfo

from duckkb.documents.extract import page
from duckkb.documents.extract.result import FileText, clean_text, one_line, truncate_text
from duckkb.documents.extract.wordml import count_shown, is_harmless, local, paragraphs, plainer

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
    return page.markdown(html)[1]


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
