"""The plain objects that actions give, as JSON Schema: what is always there is required, and more may come later."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_TEXT, _WHOLE, _NUMBER, _FLAG = ({"type": name} for name in ("string", "integer", "number", "boolean"))
_ANY: Schema = {}
_TEXT_OR_NONE, _WHOLE_OR_NONE = ({"type": [name, "null"]} for name in ("string", "integer"))


def _object(properties: Mapping[str, Schema], *optional: str, description: str = "") -> dict[str, Any]:
    """An object in which all of these stand, but for the optional ones."""
    required = [name for name in properties if name not in optional]
    said = {"description": description} if description else {}
    return {"type": "object", "properties": dict(properties), "required": required, **said}


def _list(items: Schema, description: str = "") -> dict[str, Any]:
    return {"type": "array", "items": items, **({"description": description} if description else {})}


NOTICE = _object({"code": _TEXT, "message": _TEXT, "remedy": _TEXT}, description="What must be known of an answer.")
NOTICES = _list(NOTICE)
_CHUNK = _object({"field": _TEXT, "chunk_seq": _WHOLE, "text": _TEXT}, "text")
_PARTIAL = _list(_TEXT, "The record has fields that are not here, and these only in part: not to be put back.")
_OF_RECORD = {"_type": _TEXT, "_etag": _TEXT, "_partial": _PARTIAL}
_STORED = {"__id": _WHOLE_OR_NONE, "__created_at": _TEXT_OR_NONE, "__updated_at": _TEXT_OR_NONE}
RECORD = _object({**_STORED, **_OF_RECORD}, "_partial", description="A record: its fields, and what duckkb says of it.")
_EDGE = _object({"_type": _TEXT, "direction": {"enum": ["out", "in"]}, "identity": _ANY})
_STEP = _object({**_STORED, **_OF_RECORD, "_depth": _WHOLE, "_edge": _EDGE}, "_partial", "_edge")
_OF_HIT = {"_engine": _TEXT, "_score": _NUMBER, "_chunk": _CHUNK, "_scores": {"type": "object"}, "_degraded": _FLAG}
_HIT = _object(
    {**_OF_RECORD, **_OF_HIT, "_explain": {"type": "object"}},
    *("_partial", "_score", "_chunk", "_scores", "_degraded", "_explain"),
    description="The record's fields, and where in a longer text it was found (_chunk).",
)
FOUND = _object(
    {
        "results": _list(_HIT, "Best first."),
        "mode": _TEXT,
        "engine": _TEXT,
        "degraded": _FLAG,
        "notices": NOTICES,
        "explain": {"type": "object"},
    },
    "explain",
)
PAGE = _object({"records": _list(RECORD), "total": _WHOLE, "next": _TEXT_OR_NONE})
STEPS = _object({"records": _list(_STEP, "Nearest first, each with the edge that led to it."), "truncated": _FLAG})
PATH = _object({"path": _list(_STEP, "From the start to the end; empty where there is none.")})
TYPES = _object(
    {
        "types": _list(
            _object(
                {
                    "name": _TEXT,
                    "kind": {"enum": ["node", "edge"]},
                    "table": _TEXT,
                    "identity": _list(_TEXT),
                    "from": _list(_TEXT),
                    "to": _list(_TEXT),
                    "cardinality": _TEXT,
                    "full_text": _list(_TEXT),
                    "vectors": _list(_TEXT),
                    "records": _WHOLE,
                },
                *("from", "to", "cardinality"),
            )
        )
    }
)
SCHEMA = _object({"$schema": _TEXT, "title": _TEXT}, description="The JSON Schema of the records of the type.")
ROWS = _object({"columns": _list(_TEXT), "rows": _list({"type": "object"}), "truncated": _FLAG})
WHY = _object(
    {
        "type": _TEXT,
        "identity": _TEXT,
        "question": _TEXT,
        "mode": _TEXT,
        "found": _FLAG,
        "rank": _WHOLE_OR_NONE,
        "limit": _WHOLE,
        "plain": _FLAG,
        "reasons": _list(_TEXT),
        "lanes": {"type": "object"},
        "tokens": _list({"type": "object"}),
        "filter": {"type": ["object", "null"]},
        "excluded": _list(_TEXT),
        "chunks": _WHOLE,
        "pending": _WHOLE,
        "policy": {"type": "object"},
        "first": _list(_TEXT),
        "notices": _list(_TEXT),
    }
)
FINDING = _object(
    {
        "code": _TEXT,
        "message": _TEXT,
        "path": _TEXT,
        "line": _WHOLE,
        "field": _TEXT,
        "remedy": _TEXT,
        "type": _TEXT,
        "identity": _TEXT,
    },
    *("path", "line", "field", "remedy", "type", "identity"),
)
REPORT = _object(
    {
        "outcome": {"enum": ["passed", "findings"]},
        "errors": _WHOLE,
        "warnings": _WHOLE,
        "records": _WHOLE,
        "findings": _list(FINDING),
        "groups": _list({"type": "object"}, "Findings that say the same of several records."),
    }
)
_OF_DOCUMENT = {"docid": _TEXT, "file": _TEXT, "title": _TEXT, "context": _TEXT}
_READ = {**_OF_DOCUMENT, "line": _WHOLE, "text": _TEXT, "warnings": _list(_TEXT)}
_DOCUMENT = _object(_READ, "context", "warnings", description="A document: its text from a line of its file on.")
GOT = {"type": "object", "anyOf": [RECORD, _DOCUMENT]}
DOCUMENTS = _object(
    {
        "documents": _list(_object({**_READ, "skipped": _TEXT}, "context", "line", "text", "warnings", "skipped")),
        "lacking": _list(_TEXT, "What of a list there is not."),
    }
)
_FOUND_IN: Mapping[str, Schema] = {
    "line": _WHOLE,
    "snippet": _TEXT,
    "body": _TEXT,
    "where": _TEXT,
    "explain": {"type": ["object", "null"]},
}
DOCUMENTS_FOUND = _object(
    {
        "results": _list(
            _object({**_OF_DOCUMENT, "score": _NUMBER, **_FOUND_IN}, "context", "snippet", "body", "where", "explain"),
            "Best first; a score lies in 0..1.",
        ),
        "notices": NOTICES,
        "hints": _list({"type": "object"}, "What lies near them in graphs of code."),
    },
    "hints",
)
_VERSION = _object({"name": _TEXT, "commit": _TEXT_OR_NONE})
DIFF = _object(
    {
        "version": {"const": 1},
        "outcome": {"enum": ["passed", "findings"]},
        "base": _VERSION,
        "head": _VERSION,
        "summary": {"type": "object", "additionalProperties": _WHOLE},
        "types": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _WHOLE}},
        "changes": _list({"type": "object"}, "What became of each record: `op`, `type`, `identity`, `fields`, places."),
        **{name: _list({"type": "object"}) for name in ("ontology", "groups", "findings")},
        "truncated": _FLAG,
        "next": {"type": ["object", "null"]},
    }
)
STATUS = _object(
    {
        "root": _TEXT,
        "revision": _TEXT_OR_NONE,
        "branch": _TEXT_OR_NONE,
        "records": {"type": ["object", "null"], "additionalProperties": _WHOLE},
        "pending": _WHOLE_OR_NONE,
        "stale": {"type": ["boolean", "null"]},
        "model": _TEXT,
        "trust": _FLAG,
        "endpoints": {"type": "object"},
        "locked_by": _TEXT_OR_NONE,
        "read_only": {"type": ["boolean", "null"]},
        "job": {"type": ["object", "null"]},
        "store": {"type": "object"},
        "cache": {"type": "object"},
    },
    *("root", "revision", "branch", "trust", "endpoints", "locked_by", "read_only", "job", "store", "cache"),
)
_COUNTS = dict.fromkeys(("inserted", "updated", "unchanged", "deleted", "pending"), _WHOLE)
_NAMED = {"identities": _list(_ANY), "ids": _list(_WHOLE), "etags": _list(_TEXT)}
RECEIPT = _object(
    {**_COUNTS, "files": _list(_TEXT), **_NAMED, "dry_run": _FLAG, "patch": _TEXT},
    *("dry_run", "patch"),
    description="`identities`, `ids` and `etags` run in the order of the records given; `pending` counts chunks without a vector.",
)
ERROR = _object(
    {"error": _object({"code": _TEXT, "message": _TEXT, "suggestion": _TEXT, "details": {"type": "object"}}, "details")}
)
"""What `run.failure` gives."""
