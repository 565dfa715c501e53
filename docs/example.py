"""The text of config.example.yaml, from the table of settings; `docs/generate.py` writes it."""

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from duckkb.config.setting_keys import KEYS, SECTIONS, Key
from duckkb.llm.chat_models import PROVIDER_KEYS, ROW_KEYS, RowKey
from duckkb.types.settings import ChatModelSettings, ProviderSettings

_HEAD = """\
# Every setting of duckkb with its default; a config.yaml holds only what it changes.
# For one process a variable of the environment stands over a setting: DUCKKB_ and its keys below `global`, in capitals, with _
# between (DUCKKB_RERANK_TIMEOUT_MS, DUCKKB_EMBEDDING_MODEL, DUCKKB_LIMITS_MAX_DEPTH); lists and what says how truth is written and
# merged (layout, merge, include) have none. `duckkb config show` says where each value comes from.
# Made by `make docs`; do not edit by hand.
"""
_TYPES = {
    "nodes": """\
nodes:
  Note:
    identity: id
    schema:
      type: object
      properties:
        id: {type: string}
        text: {type: string}
    search:
      full_text: [text]
      vectors: [text]
""",
    "edges": "edges: {}\n",
    "policies": "policies: {}\n",
    "collections": "collections: {}\n",
    "questions": "questions: []\n",
}
_WIDTH = 116
_PROVIDER, _MODEL = ProviderSettings(model="NAME"), ChatModelSettings("NAME", ())
_PLAIN = re.compile(r"[a-z][a-z0-9-]*")


def render() -> str:
    """The text of config.example.yaml; it loads as it stands."""
    lines: list[str] = []
    open_sections: tuple[str, ...] = ()
    for key in KEYS:
        lines += _headings(open_sections, key.section)
        open_sections = key.section
        lines += _setting(key)
    types = [f"\n# {meaning}\n{_TYPES[name]}" for name, meaning in SECTIONS.items()]
    return _HEAD + "\n".join(lines) + "\n" + "".join(types)


def _headings(before: tuple[str, ...], section: tuple[str, ...]) -> Iterator[str]:
    """The keys that open a section where the one before was another."""
    for depth, name in enumerate(section):
        if before[: depth + 1] != section[: depth + 1]:
            if depth == 0:
                yield ""
            yield f"{'  ' * depth}{name}:"
    if not section:
        yield ""


def _setting(key: Key) -> Iterator[str]:
    indent = "  " * len(key.section)
    said = f"{key.meaning} ({key.rule}{f'; also per {key.where}' if key.where else ''})"
    yield from textwrap.wrap(said, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    yield f"{indent}{key.leaf}: {_value(key.default)}"
    if key.name == "global.models":
        yield from _row(f"{indent}  ")


def _row(indent: str) -> Iterator[str]:
    """A row of the registry of chat models, as comments: there is none by default."""
    yield f"{indent}# NAME:"
    yield f"{indent}#   # Who serves it, asked in this order:"
    yield f"{indent}#   providers:"
    lead = "- "
    for key in PROVIDER_KEYS:
        yield from _commented(f"{indent}#     {' ' * len(lead)}", key)
        yield f"{indent}#     {lead}{key.name}: {_value(getattr(_PROVIDER, key.name))}"
        lead = "  "
    for key in ROW_KEYS:
        yield from _commented(f"{indent}#   ", key)
        yield f"{indent}#   {key.name}: {_value(getattr(_MODEL, key.name))}"


def _commented(indent: str, key: RowKey) -> list[str]:
    said = f"{key.meaning} ({key.rule})"
    return textwrap.wrap(said, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _value(value: Any) -> str:
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value)
