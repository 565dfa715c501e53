"""The texts of the pages, one catalogue a language: words/LANGUAGE.json."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

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
