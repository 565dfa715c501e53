"""Letters that look like others: words of an identity that mix Latin letters with what is drawn as they are."""

import re
import unicodedata

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
