"""duckkb: a git-backed knowledge engine. JSONL files in git are the truth; search runs offline.

    import duckkb
    with duckkb.open("path/to/kb") as kb:
        for hit in kb.find("Document", "how are ids given"):
            print(hit.identity, hit.score)

Names are imported when they are first used, so that `import duckkb` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase, check, diff, open
    from duckkb.operations.lifecycle import init
    from duckkb.types.errors import DuckkbError, Finding
    from duckkb.types.queries import FindResult, Hit, Notice, Receipt, SqlResult
    from duckkb.types.records import Change, Changeset, Record
    from duckkb.types.settings import Expansion, Fusion

_HOMES = {
    "KnowledgeBase": "app",
    "check": "app",
    "diff": "app",
    "init": "operations.lifecycle",
    "open": "app",
    "DuckkbError": "types.errors",
    "Finding": "types.errors",
    "FindResult": "types.queries",
    "Hit": "types.queries",
    "Notice": "types.queries",
    "Receipt": "types.queries",
    "SqlResult": "types.queries",
    "Change": "types.records",
    "Changeset": "types.records",
    "Record": "types.records",
    "Expansion": "types.settings",
    "Fusion": "types.settings",
}
__all__ = [
    "Change",
    "Changeset",
    "DuckkbError",
    "Expansion",
    "FindResult",
    "Finding",
    "Fusion",
    "Hit",
    "KnowledgeBase",
    "Notice",
    "Receipt",
    "Record",
    "SqlResult",
    "check",
    "diff",
    "init",
    "open",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'duckkb' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"duckkb.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
