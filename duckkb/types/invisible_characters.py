"""Characters that a reviewer cannot see, and letters easily taken for others, made visible or named.

Invisible are controls, characters that reorder a line or have no width, and tags. Characters that a script
needs stay where it needs them: joiners inside emoji and inside words of joining scripts, variants of emoji and
of Chinese characters.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
_REORDERING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SEPARATORS = "\u2028\u2029"
_NO_WIDTH = "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
_TAGS = "\U000e0000-\U000e0fff"
_ANY = re.compile(f"[{_CONTROLS}{_REORDERING}{_SEPARATORS}{_NO_WIDTH}{_TAGS}\ud800-\udfff]")
_KINDS = (
    ("a control character", re.compile(f"[{_CONTROLS}{_SEPARATORS}]")),
    ("a bidirectional control", re.compile(f"[{_REORDERING}]")),
    ("a tag character", re.compile(f"[{_TAGS}]")),
)
_EMOJI_FORM, _TEXT_FORM, _JOINER, _NON_JOINER = "\ufe0f", "\ufe0e", "\u200d", "\u200c"
# Scripts whose letters change form beside others: Arabic, Syriac, N'Ko and those of India and its neighbours, from
# Tifinagh to Adlam and Brahmi's descendants beyond the first plane.
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1900-\u1cff\u2d30-\u2d7f\ua840-\ua8ff\ua980-\ua9ff\uaae0-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefe\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
_KEYCAP = frozenset("0123456789#*")
_ESCAPED = re.compile(r"\\u|\\[bf]")
# The first bytes of invisible characters in UTF-8, and escapes.
_BEGINNINGS = (
    b"\\u", b"\\b", b"\\f", b"\xc2", b"\xcd\x8f", b"\xd8\x9c", b"\xe1\x85", b"\xe1\x9e", b"\xe1\xa0", b"\xe2\x80", b"\xe2\x81",
    b"\xe3\x85\xa4", b"\xef\xb8", b"\xef\xbb\xbf", b"\xef\xbe\xa0", b"\xef\xbf", b"\xf3\xa0",
)  # fmt: skip
_JSON_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_LETTERS = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
# Letters of Greek, Cyrillic, Armenian and Cherokee, and forms of Latin ones, that look like Latin letters.
_LOOK_ALIKES = re.compile(
    "[\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1\u03b9\u03bd\u03bf\u03c1\u03c5\u03f2\u03f3"
    "\u0405\u0406\u0408\u0410\u0412\u0415\u041a\u041c-\u041e\u0420-\u0423\u0425\u0430\u0435\u043e\u0440\u0441\u0443\u0445"
    "\u0455\u0456\u0458\u04ae\u04af\u04bb\u04cf\u0501\u051b\u051d\u0555\u0570\u0578\u057d\u0585\u0561\u13a0-\u13f5"
    "\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7cb]"
)
_SCRIPTS = {"GREEK": "Greek", "CYRILLIC": "Cyrillic", "ARMENIAN": "Armenian", "CHEROKEE": "Cherokee"}


def escape(character: str) -> str:
    r"""Return a character's escape as JSON and Python write it: `\u202e`."""
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def invisible_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the places and characters of a text that a reviewer cannot see; LF and tab count as visible."""
    for match in _ANY.finditer(text):
        if not _is_meaningful(text, match.start()):
            yield match.start(), match[0]


def visible(text: str, escape: Callable[[str], str] = escape) -> str:
    r"""Return a text with its invisible characters escaped.

    >>> visible("ab\u202ec\u200bd")
    'ab\\u202ec\\u200bd'
    """
    if _ANY.search(text) is None:
        return text
    pieces, behind = [], 0
    for at, character in invisible_in(text):
        pieces += [text[behind:at], escape(character)]
        behind = at + 1
    return "".join([*pieces, text[behind:]])


def _is_meaningful(text: str, at: int) -> bool:
    character, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if character == _JOINER:
        return (_is_emoji(before) and _is_emoji(after)) or _can_join(before) or _can_join(after)
    if (
        character == _NON_JOINER
    ):  # also between a word and an ending of another script or behind a bracket: `PDF\u200cها`
        return (_can_join(before) and _is_visible(after)) or (_can_join(after) and _is_visible(before))
    if character in (_EMOJI_FORM, _TEXT_FORM):
        return _is_emoji(before) or before in _KEYCAP
    return "\U000e0100" <= character <= "\U000e01ef" and before >= "\u3400" and unicodedata.category(before) == "Lo"


def _is_emoji(character: str) -> bool:
    return bool(character) and (
        (unicodedata.category(character) in ("So", "Sk", "Sm", "Po") and character > "\x7f") or character == _EMOJI_FORM
    )


def _is_visible(character: str) -> bool:
    return bool(character) and not character.isspace() and _ANY.match(character) is None


def _can_join(character: str) -> bool:
    return bool(character) and _JOINING.match(character) is not None


def may_hold_invisible(line: bytes) -> bool:
    """Return whether a canonical line may hold invisible characters: a fast test that most lines do not pass."""
    if line.isascii():
        return b"\\" in line and _ESCAPED.search(line.decode()) is not None
    return any(map(line.__contains__, _BEGINNINGS))


def invisible_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a record whose texts hold invisible characters, each with a sentence on it."""
    for name, value in fields.items():
        if message := _describe_characters(_count_invisible(value)):
            yield name, message


def invisible_in_change(before: str | None, after: str | None) -> str:
    """Return a sentence on the invisible characters that a change of a field adds; empty where it adds none.

    Both sides are given as JSON text.
    """
    if after is None or not (_ESCAPED.search(after) or next(invisible_in(after), None)):
        return ""
    more = _count_invisible(json.loads(after))
    more.subtract(_count_invisible(json.loads(before)) if before is not None else ())
    return _describe_characters(+more)


def _count_invisible(value: Any) -> Counter[str]:
    counts: Counter[str] = Counter()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            # A carriage return ends lines in texts of other systems.
            counts.update(character for _, character in invisible_in(item) if character != "\r")
        elif isinstance(item, Mapping):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
    return counts


def _describe_characters(counts: Counter[str]) -> str:
    if not counts:
        return ""
    first = min(counts)
    kind = next((name for name, some in _KINDS if some.match(first)), "a character without width")
    remainder = counts.total() - 1
    more = f", and {remainder:,} more invisible characters" if remainder else ""
    return f"holds U+{ord(first):04X}, {kind}{more}"


def describe_mixed_scripts(identity: str) -> str:
    """Return a sentence on a word of an identity that mixes Latin letters with lookalikes; empty without one.

    `identity` is as the command line writes it.

    >>> describe_mixed_scripts("pаypal")
    '`pаypal` mixes Latin letters with U+0430 (Cyrillic), which look like them'
    """
    text = _JSON_ESCAPE.sub(" ", identity) if identity.startswith("[") else identity
    for word in [] if text.isascii() else _LETTERS.findall(text):
        alike = sorted(set(_LOOK_ALIKES.findall(word)))
        if alike and _LATIN.search(word):
            scripts = [unicodedata.name(character, "").split(" ")[0] for character in alike[:3]]
            scripts = [_SCRIPTS.get(name, "another form of a Latin letter") for name in scripts]
            description = ", ".join(
                f"U+{ord(character):04X} ({script})" for character, script in zip(alike, scripts, strict=False)
            )
            return f"`{word}` mixes Latin letters with {description}, which look like them"
    return ""
