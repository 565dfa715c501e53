"""duckkb: a git-backed knowledge engine. JSONL files in git are the truth; search runs offline.

    import duckkb
    with duckkb.open("path/to/kb") as kb:
        for hit in kb.find("Document", "how are ids given"):
            print(hit.identity, hit.score)

Names are imported when they are first used, so that `import duckkb` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckkb.actions.folder import init
    from duckkb.app import KnowledgeBase, check, diff, open
    from duckkb.errors import DuckkbError, Finding
    from duckkb.queries import FindResult, Hit, Notice, Receipt, SqlResult
    from duckkb.records import Change, Changeset, Record
    from duckkb.settings import Expansion, Fusion

_HOMES = {
    "KnowledgeBase": "app",
    "check": "app",
    "diff": "app",
    "init": "actions.folder",
    "open": "app",
    "DuckkbError": "errors",
    "Finding": "errors",
    "FindResult": "queries",
    "Hit": "queries",
    "Notice": "queries",
    "Receipt": "queries",
    "SqlResult": "queries",
    "Change": "records",
    "Changeset": "records",
    "Record": "records",
    "Expansion": "settings",
    "Fusion": "settings",
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
