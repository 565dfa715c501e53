"""Decodes the bytes of a file: by their byte order mark, as UTF-8, else by a guess that is reported."""

import codecs
import re

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
