"""What the parameters of actions mean, and their limits: each name once, as it means the same wherever it stands."""

from collections.abc import Mapping
from typing import Any

NOT_OFFERED = frozenset({"fusion", "expansion"})
"""Parameters of the Python API that are values of the ontology."""

DESCRIBED: Mapping[str, str] = {
    "after": "Go on behind this: the `next` of the page before.",
    "arch_hints": "Say in `hints` what lies near the answers in the graph of the code.",
    "budget": "At most about so many bytes; what has no room is counted, and `next` says how to go on.",
    "candidates": "How many documents a reranker reads at most.",
    "cascade": "Delete the edges that touch a node too.",
    "collections": "Only documents of these collections.",
    "depth": "How many edges away at most.",
    "direction": "Which way edges are followed.",
    "document": "A document: its path in a collection (guide/install.md, guide/install.md:40), duckkb:// URI, or docid (#3fa9c1).",
    "dry_run": "Write nothing; the answer says what would be written, with a `patch`.",
    "embed": "Make vectors now; else a later search makes them.",
    "end": "Where the path ends: [type, identity].",
    "explain": "Say how each score came about.",
    "first": "Of a document: from this line of its file on.",
    "full": "Whole texts instead of snippets.",
    "identities": "The identities of the records, each as `identity` elsewhere.",
    "identity": "The identity of a record: a text, a number, or a list where it has several parts (an edge: [from, to]).",
    "if_match": "Only if the record is still at this version: its `_etag`.",
    "ignore": "Fields that do not count: a record that differs in nothing else is left out.",
    "label": "Only edges of this type, or of these.",
    "limit": "At most this many results.",
    "lines": "Of a document: at most this many lines.",
    "merge": "Change only the fields given; otherwise the record is replaced.",
    "min_score": "Only documents with at least this score, which lies in 0..1.",
    "mode": "How to search: by meaning (similar), words (match), both (hybrid), or the filter alone (where); by itself as the type's policy says.",
    "most": "Skip files that have more bytes.",
    "new": "The identity that the record gets.",
    "old": "The identity that the record has.",
    "only": "Only these types or records: TYPE or TYPE:IDENTITY.",
    "pattern": "A glob over paths of documents (runbooks/**/*.md), or paths and docids with commas between them.",
    "query": "The question, in words.",
    "question": "The question, in words.",
    "records": "One record as an object of its fields, or a list of them. An edge has `from` and `to`.",
    "range": "What is compared: BASE with the files as they are, BASE..HEAD, or BASE...HEAD.",
    "rerank_timeout_ms": "How long a reranker may take, in milliseconds.",
    "start": "Where the path starts: [type, identity].",
    "statement": "One read-only SELECT. Tables: one per node type and edge label, search_index, search_cache.",
    "timeout": "How many seconds it may take.",
    "type": "A type or collection, by its name, table or label.",
    "vector": "The question as a vector; with a query too, the search is hybrid.",
    "where": "A filter over fields, applied before ranking: topic = 'storage' AND year > 2019.",
    "allow_shrink": "A write that deletes more records than the limits of the base let go is meant.",
}
_DIFFERENT: Mapping[tuple[str, str], str] = {
    ("find", "type"): "A type or collection, by its name, table or label; `all` searches every one.",
    ("list", "after"): "Start behind the record with this identity: the `next` of the page before.",
    ("diff", "after"): "Go on where an answer ended: the `after` of its `next`.",
    ("query", "question"): (
        "The question, in words. Several lines are questions each for its lane: `lex:` words that must all be there, `vec:` a "
        "question, `hyde:` an answer as it might stand in a text; `intent:` says what is meant."
    ),
    ("search", "question"): 'Words: "a phrase", -not, prefix*.',
}

LIMITS: Mapping[str, Mapping[str, Any]] = {
    "budget": {"minimum": 2_000, "maximum": 100_000_000},
    "candidates": {"minimum": 0},
    "depth": {"minimum": 1, "maximum": 1_000},
    "first": {"minimum": 1},
    "limit": {"minimum": 1, "maximum": 1_000_000},
    "lines": {"minimum": 1},
    "min_score": {"minimum": 0},
    "most": {"minimum": 1},
    "rerank_timeout_ms": {"minimum": 1},
    "timeout": {"exclusiveMinimum": 0, "maximum": 3_600},
}
"""What a parameter may be beyond its type."""


def described(action: str, name: str) -> str:
    """What a parameter of an action means; raises KeyError where nobody said it."""
    return _DIFFERENT.get((action, name)) or DESCRIBED[name]
