"""The plain objects of actions, as JSON Schema: required keys are always there, and more may be added later.

Building blocks of the answers' shapes: JSON Schema of values, objects and lists."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT, WHOLE, NUMBER, FLAG = ({"type": name} for name in ("string", "integer", "number", "boolean"))
ANY: Schema = {}
TEXT_OR_NONE, WHOLE_OR_NONE, NUMBER_OR_NONE = ({"type": [name, "null"]} for name in ("string", "integer", "number"))


def object_of(properties: Mapping[str, Schema], *optional: str, description: str = "") -> dict[str, Any]:
    """Return the schema of an object; all properties but the optional ones are required."""
    required_names = [name for name in properties if name not in optional]
    annotations = {"description": description} if description else {}
    return {"type": "object", "properties": dict(properties), "required": required_names, **annotations}


def list_of(items: Schema, description: str = "") -> dict[str, Any]:
    return {"type": "array", "items": items, **({"description": description} if description else {})}


NOTICE = object_of(
    {
        **dict.fromkeys(("code", "message", "remedy"), TEXT),
        "reason": {**TEXT, "description": "The part that was missing, and the reason."},
    },
    "reason",
    description="Something that callers must know about an answer.",
)
NOTICES = list_of(NOTICE)
_CHUNK = object_of({"field": TEXT, "chunk_seq": WHOLE, "text": TEXT}, "text")
_PARTIAL = list_of(TEXT, "The record has fields that are missing or shortened here; do not put it back.")
_OF_RECORD = {"_type": TEXT, "_etag": TEXT, "_partial": _PARTIAL}
_STORED = {"__id": WHOLE_OR_NONE, "__created_at": TEXT_OR_NONE, "__updated_at": TEXT_OR_NONE}
_SINCE = object_of(
    {"state": {"enum": ["changed", "renamed", "deleted"]}, "fields": list_of(TEXT), "identity": ANY},
    *("fields", "identity"),
    description="How the record differs now from its cited version.",
)
RECORD = object_of(
    {**_STORED, **_OF_RECORD, "_chunk": _CHUNK, "_since": _SINCE, "_notices": NOTICES},
    *(*_STORED, *_OF_RECORD, "_chunk", "_since", "_notices"),
    description="A record: its fields, and those that duckkb adds; with `fields` only those.",
)
_EDGE = object_of({"_type": TEXT, "_direction": {"enum": ["out", "in"]}, "_identity": ANY}, "_identity")
_LINE = {**WHOLE, "description": "For a document: the line of its file where this text begins."}
_OF_LISTED = {**_STORED, **_OF_RECORD, "_line": _LINE}
_LISTED = object_of(
    _OF_LISTED, *_OF_LISTED, description="A record with long texts shortened; with `fields` only those."
)
_OF_STEP = {**_OF_LISTED, "_depth": WHOLE, "_edge": _EDGE}
_STEP = object_of(_OF_STEP, *_OF_STEP, description="A record with long texts shortened; with `fields` only those.")
_OF_HIT = {"_engine": TEXT, "_score": NUMBER, "_chunk": _CHUNK, "_scores": {"type": "object"}}
_OF_HIT |= {"_line": _LINE, "_provenance": {"type": "object"}}
_OF_HIT |= {"_degraded": FLAG, "_filled": FLAG}
_HIT = object_of(
    {**_OF_RECORD, **_OF_HIT, "_explain": {"type": "object"}},
    *(*_OF_RECORD, *_OF_HIT, "_explain"),
    description="The record's fields, long ones shortened (_partial names them), and the matching piece of a longer text (_chunk).",
)
FOUND = object_of(
    {
        "results": list_of(_HIT, "Best first."),
        "mode": TEXT,
        "engine": TEXT,
        "degraded": FLAG,
        "notices": NOTICES,
        "explain": {"type": "object"},
    },
    "explain",
)
PAGE = object_of({"records": list_of(_LISTED), "total": WHOLE, "next": TEXT_OR_NONE})
STEPS = object_of(
    {
        "records": list_of(_STEP, "Nearest first, each with the edge that led to it."),
        "truncated": FLAG,
        "next": {**TEXT_OR_NONE, "description": "The cursor of the next page, for records one edge away."},
    }
)
CITING = object_of({"records": list_of(_LISTED), "truncated": FLAG})
NEAR = object_of(
    {
        "records": list_of(
            {
                **_LISTED,
                "properties": {**_LISTED["properties"], "_score": NUMBER},
            },
            "Nearest first; `_score` is a mean cosine.",
        )
    }
)
PATH = object_of({"path": list_of(_STEP, "From the start to the end; empty if no path exists.")})
TYPES = object_of(
    {
        "types": list_of(
            object_of(
                {
                    "name": TEXT,
                    "kind": {"enum": ["node", "edge"]},
                    "table": TEXT,
                    "identity": list_of(TEXT),
                    "from": list_of(TEXT),
                    "to": list_of(TEXT),
                    "cardinality": TEXT,
                    "display": list_of(TEXT),
                    "full_text": list_of(TEXT),
                    "vectors": list_of(TEXT),
                    "records": WHOLE,
                },
                *("from", "to", "cardinality"),
            )
        )
    }
)
SCHEMA = object_of({"$schema": TEXT, "title": TEXT}, description="The JSON Schema of the records of the type.")
_SEARCHED = object_of(
    {
        "field": TEXT,
        "weight": NUMBER,
        "language": TEXT,
        "chunk_size": WHOLE,
        "reach": TEXT,
        "given": FLAG,
        "dimension": WHOLE_OR_NONE,
    },
    *("weight", "language", "chunk_size", "reach", "given", "dimension"),
    description="A searched field; * means the fields that each record has. A vector that callers give is `given`.",
)
SETTINGS = object_of(
    {
        "type": TEXT,
        "policy": {
            "anyOf": [
                {"type": "null"},
                object_of(
                    {
                        **dict.fromkeys(("name", "description"), TEXT),
                        "intents": list_of(TEXT),
                        "default_intent": TEXT_OR_NONE,
                        "refuse": {"type": "object", "additionalProperties": TEXT},
                    }
                ),
            ]
        },
        "full_text": list_of(_SEARCHED),
        "vectors": list_of(_SEARCHED),
        "review": list_of(TEXT, "Fields that agents must change by proposals; * for all of them."),
        "settings": list_of(
            object_of(
                {
                    "name": TEXT,
                    "value": ANY,
                    "origin": {"enum": ["type", "policy", "configuration", "default"]},
                    "description": TEXT,
                }
            )
        ),
    }
)
ROWS = object_of({"columns": list_of(TEXT), "rows": list_of({"type": "object"}), "truncated": FLAG})
WHY = object_of(
    {
        "type": TEXT,
        "identity": TEXT,
        "question": TEXT,
        "mode": TEXT,
        "found": FLAG,
        "rank": WHOLE_OR_NONE,
        "limit": WHOLE,
        "plain": FLAG,
        "reasons": list_of(TEXT),
        "lanes": {"type": "object"},
        "tokens": list_of({"type": "object"}),
        "filter": {"type": ["object", "null"]},
        "excluded": list_of(TEXT),
        "chunks": WHOLE,
        "pending": WHOLE,
        "policy": {"type": "object"},
        "first": list_of(TEXT),
        "notices": list_of(TEXT),
    }
)
FINDING = object_of(
    {
        "code": TEXT,
        "message": TEXT,
        "path": TEXT,
        "line": WHOLE,
        "field": TEXT,
        "remedy": TEXT,
        "type": TEXT,
        "identity": TEXT,
    },
    *("path", "line", "field", "remedy", "type", "identity"),
)
REPORT = object_of(
    {
        "outcome": {"enum": ["passed", "findings", "not_judged"]},
        "errors": WHOLE,
        "warnings": WHOLE,
        "records": WHOLE,
        "findings": list_of(FINDING),
        "groups": list_of({"type": "object"}, "Equal findings on several records."),
    }
)
_OF_DOCUMENT = {"docid": TEXT, "file": TEXT, "title": TEXT, "context": TEXT}
_READ = {**_OF_DOCUMENT, "line": WHOLE, "text": TEXT, "warnings": list_of(TEXT)}
_DOCUMENT = object_of(_READ, "context", "warnings", description="A document: its text from a line of its file.")
GOT = {"type": "object", "anyOf": [RECORD, _DOCUMENT]}
DOCUMENTS = object_of(
    {
        "documents": list_of(object_of({**_READ, "skipped": TEXT}, "context", "line", "text", "warnings", "skipped")),
        "lacking": list_of(TEXT, "Entries of the list that do not exist."),
    }
)
_FOUND_IN: Mapping[str, Schema] = {
    "line": WHOLE,
    "snippet": TEXT,
    "body": TEXT,
    "where": TEXT,
    "_filled": FLAG,
    "explain": {"type": ["object", "null"]},
}
DOCUMENTS_FOUND = object_of(
    {
        "results": list_of(
            object_of(
                {**_OF_DOCUMENT, "score": NUMBER, **_FOUND_IN},
                *("context", "snippet", "body", "where", "_filled", "explain"),
            ),
            "Best first; a score is between 0 and 1.",
        ),
        "notices": NOTICES,
        "hints": list_of({"type": "object"}, "Code near them in code graphs."),
    },
    "hints",
)
_ENTRY = object_of(
    {
        "number": WHOLE,
        "uri": TEXT,
        "path": TEXT,
        "line": WHOLE,
        "sha256": TEXT,
        "score": {"type": ["number", "null"]},
        "beside": WHOLE,
        "over": TEXT,
        "text": TEXT,
    },
    *("beside", "over", "text"),
    description="A quoted text and its citation. `beside` is the entry that an edge (`over`) led from.",
)
PACK = object_of(
    {
        "question": TEXT,
        "commit": TEXT_OR_NONE,
        **dict.fromkeys(("uncommitted", "budget", "tokens"), WHOLE),
        **dict.fromkeys(("counter", "fingerprint"), TEXT),
        "entries": list_of(_ENTRY, "Best first."),
        "omitted": list_of(object_of({"uri": TEXT, "tokens": WHOLE}), "The first results that did not fit."),
        "omitted_count": WHOLE,
        "notices": NOTICES,
        "text": TEXT,
    },
    "text",
)
_CITED = object_of(
    {
        "number": WHOLE,
        "uri": TEXT,
        "path": TEXT,
        "line": WHOLE,
        "sha256": TEXT,
        "score": {"type": ["number", "null"]},
    }
)
_MARK = object_of(
    {
        "fault": {"enum": ["uncited", "no_entry", "quotation", "code", "number", "name", "denial", "unrelated"]},
        "part": TEXT,
    },
    description="The parts of a sentence that its cited texts do not support.",
)
ANSWER = object_of(
    {
        "question": TEXT,
        "answer": TEXT_OR_NONE,
        "sentences": list_of(object_of({"text": TEXT, "cites": list_of(WHOLE), "marks": list_of(_MARK)})),
        "unsupported": {**WHOLE, "description": "Number of sentences with marks."},
        "entries": list_of(_CITED, "The citations of the answer."),
        "cut": {**TEXT_OR_NONE, "description": "Why the model stopped early, if it did."},
        "refusal": {
            "anyOf": [
                {"type": "null"},
                object_of({"code": TEXT, "reason": TEXT, "nearest": list_of(_CITED, "The first results.")}),
            ]
        },
        **dict.fromkeys(("model", "provider"), TEXT_OR_NONE),
        "usage": {
            "type": ["object", "null"],
            "description": "Tokens of prompt, completion and both, as the provider counts.",
        },
        "support": object_of({"coverage": NUMBER_OR_NONE, "lead": NUMBER_OR_NONE}),
        "pack": object_of(
            {
                "commit": TEXT_OR_NONE,
                **dict.fromkeys(("uncommitted", "budget", "tokens", "entries", "omitted"), WHOLE),
                **dict.fromkeys(("counter", "fingerprint"), TEXT),
            }
        ),
        **dict.fromkeys(("prompt", "fingerprint"), TEXT),
        "notices": NOTICES,
    }
)
STATUS = object_of(
    {
        "root": TEXT,
        "revision": TEXT_OR_NONE,
        "branch": TEXT_OR_NONE,
        "records": {"type": ["object", "null"], "additionalProperties": WHOLE},
        "missing": WHOLE_OR_NONE,
        "unverified": WHOLE_OR_NONE,
        "team_cache": {"enum": ["absent", "stale", "current", None]},
        "model": TEXT,
        "trust": FLAG,
        "endpoints": {"type": "object"},
        "locked_by": TEXT_OR_NONE,
        "read_only": {"type": ["boolean", "null"]},
        "warnings": {"type": ["array", "null"], "items": TEXT},
        "job": {"type": ["object", "null"]},
        "store": {"type": "object"},
        "cache": {"type": "object"},
        "sealed": {"type": ["object", "null"]},
    },
    *("root", "revision", "branch", "trust", "endpoints", "locked_by", "read_only", "job", "store", "cache", "sealed"),
)
ARCH_STATUS = object_of(
    {
        "name": TEXT,
        "configured": FLAG,
        "trusted": {"type": ["boolean", "null"]},
        "commit": TEXT_OR_NONE,
        "head": TEXT_OR_NONE,
        "ahead": WHOLE_OR_NONE,
        "stale": {"type": ["boolean", "null"]},
        "nodes": WHOLE,
        "edges": WHOLE,
    }
)
ARCH_HINTS = object_of({"hints": list_of({"type": "object"}, "Code nearby, the most certain first.")})
_COUNTS = dict.fromkeys(("inserted", "updated", "unchanged", "deleted", "pending"), WHOLE)
_NAMED = {"identities": list_of(ANY), "ids": list_of(WHOLE), "etags": list_of(TEXT)}
_CHANGE = object_of(
    {
        "op": {"enum": ["insert", "update", "delete"]},
        "type": TEXT,
        "identity": ANY,
        "fields": {"type": "object", "description": "For an update each changed field, `before` and `after`."},
    },
    "fields",
)
_TRIAL = {
    "dry_run": FLAG,
    "patch": TEXT,
    "changes": list_of(_CHANGE, "The changes of the first records, with long texts shortened."),
    "changes_left_out": {**WHOLE, "description": "Number of further records."},
}
RECEIPT = object_of(
    {**_COUNTS, "files": list_of(TEXT), **_NAMED, **_TRIAL},
    *_TRIAL,
    description="`identities`, `ids` and `etags` run in the order of the records given; `pending` counts chunks without a vector.",
)
_ACCESSED = {"accessed": {**WHOLE_OR_NONE, "description": "Number of accesses on this machine; null if unknown."}}
MEMORIES = {
    **FOUND,
    "properties": {
        **FOUND["properties"],
        "results": list_of(
            {
                **_HIT,
                "properties": {**_HIT["properties"], "_accessed": _ACCESSED["accessed"]},
                "required": [*_HIT["required"], "_accessed"],
            },
            "Best first.",
        ),
    },
}
_WHO = dict.fromkeys(("author", "email", "date", "summary"), TEXT)
_TEXTS = list_of(TEXT)
_BY: Mapping[str, Schema] = {**_WHO, "commit": TEXT_OR_NONE, "uncommitted": FLAG, "shallow": FLAG}
_UNSAID = (*_WHO, "uncommitted", "shallow")  # uncommitted changes have no author
BLAME = object_of(
    {
        "fields": list_of(
            object_of({"field": TEXT, "value": ANY, **_BY, "path": TEXT, "line": WHOLE, "uri": TEXT}, *_UNSAID)
        )
    }
)
LOG = object_of(
    {
        "changes": list_of(
            object_of(
                {
                    **_BY,
                    **dict.fromkeys(("op", "type", "identity", "was", "path"), TEXT),
                    "line": WHOLE,
                    "fields": {"type": "object", "description": "For each changed field `before` and `after`."},
                },
                *(*_UNSAID, "was"),
            ),
            "The newest first.",
        )
    }
)
_MEMORY = {"updated_at": TEXT, "text": TEXT, "tags": _TEXTS, "links": _TEXTS, "source": TEXT}
_VERSION_OF_MEMORY: Mapping[str, Schema] = {
    "commit": TEXT_OR_NONE, "uncommitted": FLAG, **_WHO, "shallow": FLAG, "op": TEXT, "was": TEXT, **_MEMORY,
}  # fmt: skip
VERSIONS = object_of(
    {
        "scope": TEXT,
        "key": TEXT,
        "versions": list_of(
            object_of(_VERSION_OF_MEMORY, *(name for name in _VERSION_OF_MEMORY if name != "op")),
            "Newest first; without a text if it was deleted.",
        ),
        "truncated": FLAG,
    }
)
_KEY_AND_TIME, _KEY_AND_COUNT = object_of({"key": TEXT, "updated_at": TEXT}), object_of({"key": TEXT, **_ACCESSED})
MEMORY_STATS = object_of(
    {
        "scopes": list_of(
            object_of(
                {
                    "scope": TEXT,
                    "collection": TEXT,
                    "memories": WHOLE,
                    "newest": list_of(_KEY_AND_TIME, "At most five, the newest first."),
                    "oldest": list_of(_KEY_AND_TIME, "At most one."),
                    **_ACCESSED,
                    "most_accessed": list_of(_KEY_AND_COUNT, "At most five."),
                    "tags": {"type": "object", "additionalProperties": WHOLE},
                }
            )
        )
    }
)
MARKED = object_of({"scope": TEXT, "marked": list_of(_KEY_AND_COUNT)})
ERROR = object_of(
    {"error": object_of({"code": TEXT, "message": TEXT, "suggestion": TEXT, "details": {"type": "object"}}, "details")}
)
"""The shape of what `run.failure` returns."""
