r"""Characters that a reviewer does not see: controls, what reorders a line, what has no width, tags. Made visible, or named.

What some writing needs is left alone where it needs it: joiners inside emoji and inside words of the scripts that join,
the form of an emoji, the variant of a Chinese character.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

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
# Scripts whose letters take other forms beside others: Arabic, Syriac, N'Ko and those of India and its neighbours, from
# Tifinagh to Adlam and Brahmi's descendants beyond the first plane.
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1900-\u1cff\u2d30-\u2d7f\ua840-\ua8ff\ua980-\ua9ff\uaae0-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefe\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
_KEYCAP = frozenset("0123456789#*")


def escape(character: str) -> str:
    """A character by its number, as JSON and Python have it: `\\u202e`."""
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def invisible_in(text: str) -> Iterator[tuple[int, str]]:
    """The places and characters of a text that a reviewer would not see; LF and tab are seen."""
    for found in _ANY.finditer(text):
        if not _is_needed(text, found.start()):
            yield found.start(), found[0]


def visible(text: str, escape: Callable[[str], str] = escape) -> str:
    r"""A text with what is not seen as escapes.

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


def named(character: str) -> str:
    """What a character is, in words: `U+202E, a bidirectional control`."""
    kind = next((name for name, some in _KINDS if some.match(character)), "a character without width")
    return f"U+{ord(character):04X}, {kind}"


def _is_needed(text: str, at: int) -> bool:
    character, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if character == _JOINER:
        return (_is_emoji(before) and _is_emoji(after)) or _joins(before) or _joins(after)
    if (
        character == _NON_JOINER
    ):  # also between a word and an ending of another script or behind a bracket: `PDF\u200cها`
        return (_joins(before) and _is_seen(after)) or (_joins(after) and _is_seen(before))
    if character in (_EMOJI_FORM, _TEXT_FORM):
        return _is_emoji(before) or before in _KEYCAP
    return "\U000e0100" <= character <= "\U000e01ef" and _is_ideograph(before)


def _is_emoji(character: str) -> bool:
    return bool(character) and (
        (unicodedata.category(character) in ("So", "Sk", "Sm", "Po") and character > "\x7f") or character == _EMOJI_FORM
    )


def _is_seen(character: str) -> bool:
    return bool(character) and not character.isspace() and _ANY.match(character) is None


def _joins(character: str) -> bool:
    return bool(character) and _JOINING.match(character) is not None


def _is_ideograph(character: str) -> bool:
    return bool(character) and unicodedata.category(character) == "Lo" and character >= "\u3400"
