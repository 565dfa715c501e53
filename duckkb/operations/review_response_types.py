"""The answers of actions that compare versions, as JSON Schema: changes, impact, history."""

from collections.abc import Mapping
from typing import Any

from duckkb.operations.response_types import (
    FINDING,
    FLAG,
    NUMBER_OR_NONE,
    TEXT,
    TEXT_OR_NONE,
    WHOLE,
    WHOLE_OR_NONE,
    Schema,
    list_of,
    object_of,
)

_VERSION = object_of({"name": TEXT, "commit": TEXT_OR_NONE})
DIFF = object_of(
    {
        "version": {"const": 1},
        "outcome": {"enum": ["passed", "findings", "not_judged"]},
        "base": _VERSION,
        "head": _VERSION,
        "prefix": {
            **TEXT,
            "description": "The folder of the base inside its repository, with / at its end; empty where the two are one.",
        },
        "summary": {"type": "object", "additionalProperties": WHOLE},
        "types": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": WHOLE}},
        "changes": list_of(
            {"type": "object"}, "The change of each record: `op`, `type`, `identity`, `fields`, places."
        ),
        **{name: list_of({"type": "object"}) for name in ("ontology", "groups", "findings")},
        "truncated": FLAG,
        "next": {"type": ["object", "null"]},
    }
)
_COUNT_BY_OP = {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": WHOLE}}
_COUNTED = {
    "anyOf": [_COUNT_BY_OP, {"type": "null"}],
    "description": "Records by type and kind of change; null: not known.",
}
BRANCHES = object_of(
    {
        "head": object_of({"name": TEXT, "commit": TEXT_OR_NONE}, description="The current checkout."),
        "operation": {
            **TEXT_OR_NONE,
            "description": "The operation in progress: merge, rebase, cherry-pick, revert, am.",
        },
        "uncommitted": _COUNTED,
        "branches": list_of(
            object_of(
                {
                    **dict.fromkeys(("name", "commit", "author", "date", "subject"), TEXT),
                    "is_proposal": FLAG,
                    "records": _COUNTED,
                }
            ),
            "The newest first.",
        ),
        "next": TEXT_OR_NONE,
    }
)
_CONFLICT = object_of(
    {
        **dict.fromkeys(("name", "type", "field", "path"), TEXT),
        "identity": {"description": "As in the record: a scalar, or a list (for an edge: [from, to])."},
        **dict.fromkeys(("base", "ours", "theirs"), TEXT_OR_NONE),
        "etag": TEXT,
    },
    description="`base`, `ours` and `theirs` are JSON texts; null if a side does not have it. Without a field it is a "
    "whole record.",
)
CONFLICTS = object_of(
    {
        "operation": TEXT,
        "conflicts": list_of(_CONFLICT),
        "total": WHOLE,
        "next": TEXT_OR_NONE,
        **dict.fromkeys(("unreadable", "unstaged", "staged", "others", "files", "rescued"), list_of(TEXT)),
        "violations": list_of(FINDING, "Rules that the resolved records break together."),
    }
)
_BEFORE_AFTER = object_of({"before": NUMBER_OR_NONE, "after": NUMBER_OR_NONE})
IMPACT = object_of(
    {
        "version": {"const": 1},
        "outcome": {"enum": ["passed", "findings", "limits"]},
        **dict.fromkeys(("base", "head"), TEXT),
        **dict.fromkeys(("k", "questions", "compared", "lost", "faded"), WHOLE),
        **dict.fromkeys(("ndcg", "recall"), _BEFORE_AFTER),
        **dict.fromkeys(("crossed", "degraded"), list_of(TEXT)),
        **{name: list_of({"type": "object"}) for name in ("results", "removed", "findings")},
    }
)
_SAMPLE = {
    "commit": TEXT,
    "number": {**WHOLE, "description": "Its place in the history, from 1."},
    **dict.fromkeys(("date", "author", "summary"), TEXT),
}


def _describe_history(properties: Mapping[str, Schema], *optional: str) -> dict[str, Any]:
    commits = list_of(object_of({**_SAMPLE, **properties}, *optional))
    text = (
        "The oldest first; null for a published base and for callers who see a part of the base, empty outside of git."
    )
    return {"anyOf": [{"type": "null"}, commits], "description": text}


_OF_HISTORY = {"total": {**WHOLE, "description": "Number of commits in the history."}, "shallow": FLAG}
GROWTH = object_of(
    {
        "types": list_of(
            object_of(
                {
                    "name": TEXT,
                    "kind": {"enum": ["node", "edge"]},
                    **dict.fromkeys(("records", "parts"), WHOLE),
                    "bytes": WHOLE_OR_NONE,
                }
            )
        ),
        "commits": _describe_history(
            {"types": {"type": "object", "additionalProperties": object_of({"records": WHOLE, "bytes": WHOLE})}}
        ),
        **_OF_HISTORY,
        "left": {**WHOLE, "description": "Commits not counted for lack of time."},
    }
)
_BY_LANE = {"type": "object", "additionalProperties": NUMBER_OR_NONE}
QUALITY = object_of(
    {
        **dict.fromkeys(("k", "deepest", "asked"), WHOLE),
        "left": {**WHOLE, "description": "Questions not asked for lack of time."},
        "ndcg": {**_BY_LANE, "description": "The mean of each lane over its questions."},
        "questions": list_of(
            object_of(
                {
                    **dict.fromkeys(("question", "type"), TEXT),
                    "where": TEXT_OR_NONE,
                    "expected": {"type": "object", "additionalProperties": WHOLE},
                    "lanes": {
                        "type": "object",
                        "additionalProperties": object_of(
                            {
                                "ndcg": NUMBER_OR_NONE,
                                "ranks": {"type": "object", "additionalProperties": WHOLE_OR_NONE},
                                "problem": TEXT,
                            },
                            "problem",
                        ),
                    },
                }
            )
        ),
        "commits": _describe_history({"ndcg": _BY_LANE, "problem": TEXT}, "problem"),
        **_OF_HISTORY,
        "commits_left": {**WHOLE, "description": "Covered commits that are not evaluated yet."},
    }
)
