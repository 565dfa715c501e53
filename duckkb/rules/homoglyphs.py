"""What in a record looks like something else than it is: characters that nobody sees, letters that look like others."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from duckkb.ontology.source import pointer
from duckkb.rules.invisible import named, unseen

_ESCAPED = re.compile(r"\\u|\\[bf]")
# How what is not seen begins in UTF-8, and escapes.
_BEGINNINGS = (
    b"\\u", b"\\b", b"\\f", b"\xc2", b"\xcd\x8f", b"\xd8\x9c", b"\xe1\x85", b"\xe1\x9e", b"\xe1\xa0", b"\xe2\x80", b"\xe2\x81",
    b"\xe3\x85\xa4", b"\xef\xb8", b"\xef\xbb\xbf", b"\xef\xbe\xa0", b"\xef\xbf", b"\xf3\xa0",
)  # fmt: skip
_JSON_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_LETTERS = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
# Letters of Greek, Cyrillic, Armenian and Cherokee, and forms of Latin ones, that are drawn as Latin letters are.
_LOOK_ALIKES = re.compile(
    "[\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1\u03b9\u03bd\u03bf\u03c1\u03c5\u03f2\u03f3"
    "\u0405\u0406\u0408\u0410\u0412\u0415\u041a\u041c-\u041e\u0420-\u0423\u0425\u0430\u0435\u043e\u0440\u0441\u0443\u0445"
    "\u0455\u0456\u0458\u04ae\u04af\u04bb\u04cf\u0501\u051b\u051d\u0555\u0570\u0578\u057d\u0585\u0561\u13a0-\u13f5"
    "\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7cb]"
)
_SCRIPTS = {"GREEK": "Greek", "CYRILLIC": "Cyrillic", "ARMENIAN": "Armenian", "CHEROKEE": "Cherokee"}


def may_hide(line: bytes) -> bool:
    """Whether a line, in canonical form, may hold what nobody sees. Quick: most lines do not."""
    if line.isascii():
        return b"\\" in line and _ESCAPED.search(line.decode()) is not None
    return any(map(line.__contains__, _BEGINNINGS))


def hidden_in(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a record, as JSON pointers, whose texts hold what nobody sees, each with a sentence on it."""
    for name, value in fields.items():
        if said := _sentence(_unseen_in(value)):
            yield pointer(name), said


def hidden_in_change(name: str, before: str | None, after: str | None) -> tuple[str, str] | None:
    """The same of a field that changed, given as JSON text: what the new side has more of."""
    if after is None or not (_ESCAPED.search(after) or next(unseen(after), None)):
        return None
    more = _unseen_in(json.loads(after))
    more.subtract(_unseen_in(json.loads(before)) if before is not None else ())
    said = _sentence(+more)
    return (pointer(name), said) if said else None


def mixed_identity(identity: str) -> str:
    """A sentence on a word of an identity, as the command line writes it, that mixes Latin letters with others that look like
    Latin ones, else empty.

    >>> mixed_identity("p\u0430ypal")
    '`p\u0430ypal` mixes Latin letters with U+0430 (Cyrillic), which look like them'
    """
    text = _JSON_ESCAPE.sub(" ", identity) if identity.startswith("[") else identity
    for word in [] if text.isascii() else _LETTERS.findall(text):
        alike = sorted(set(_LOOK_ALIKES.findall(word)))
        if alike and _LATIN.search(word):
            shown = ", ".join(f"U+{ord(one):04X} ({_script(one)})" for one in alike[:3])
            return f"`{word}` mixes Latin letters with {shown}, which look like them"
    return ""


def _script(letter: str) -> str:
    name = unicodedata.name(letter, "").split(" ")[0]
    return _SCRIPTS.get(name, "another form of a Latin letter")


def _unseen_in(value: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            # A carriage return ends lines in texts of other systems.
            found.update(character for _, character in unseen(one) if character != "\r")
        elif isinstance(one, Mapping):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
    return found


def _sentence(found: Counter[str]) -> str:
    if not found:
        return ""
    first = min(found)
    others = found.total() - 1
    return f"holds {named(first)}" + (f", and {others:,} more that nobody sees" if others else "")
