"""The meaning and the limits of action parameters: each name once, since it means the same everywhere."""

from collections.abc import Mapping
from typing import Any

NOT_OFFERED = frozenset({"fusion", "expansion"})
"""Parameters of the Python API only, since their values belong to the ontology."""

DESCRIBED: Mapping[str, str] = {
    "after": "Go on behind this: the `next` of the page before.",
    "answers": (
        "What is chosen: for each conflict its `type`, `identity`, `field` and `etag`, and one of `choose` (ours, theirs, base, newest), "
        "`value`, `record`, and `delete` (true)."
    ),
    "at": "As the base was at a commit, branch or tag.",
    "arch_hints": "Say what lies near the answers in the graph of the code: in `hints`, or on stderr beside lines.",
    "branch": "A branch: all that it has and HEAD has not.",
    "budget": "At most about so many bytes; what has no room is counted, and `next` says how to go on.",
    "candidates": "How many documents a reranker reads at most.",
    "cascade": "Delete the edges that touch a node too.",
    "collections": "Only documents of these collections.",
    "depth": "How many edges away at most.",
    "direction": "Which way edges are followed.",
    "citation": "What a citation names, as it was then: duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ, as `pack` and `ask` give it.",
    "document": "A document: its path in a collection (guide/install.md, guide/install.md:40), duckkb:// URI, or docid (#3fa9c1).",
    "dry_run": "Write nothing; say what would change.",
    "embed": "Whether vectors are made now, or left to a later search or `index build`.",
    "end": "Where the path ends: [type, identity].",
    "evaluate": "How many commits that nobody has evaluated yet are, the newest first: each is opened and asked all questions.",
    "explain": "Say how each score came about: why each result ranks where it does.",
    "field": "Only this field, or what stands at a path below it: names.fr, tags[0].",
    "fields": "Only these fields (meta.source for one inside another) and what names the record; +_chunk: beside what is given anyway.",
    "first": "Of a document: from this line of its file on.",
    "form": "How the texts are given: as one Markdown or plain text, or (json) each in its entry.",
    "full": "Whole texts instead of those of their lines that fit.",
    "intent": "With `searches`: what is meant; it is not searched for.",
    "identities": "The identities of the records, each as `identity` elsewhere.",
    "identity": "The identity of a record: a text, a number, or a list where it has several parts (an edge: [from, to]).",
    "if_match": "Only if the record is still at this version: its `_etag`.",
    "ignore": "Fields that do not count: a record that differs in nothing else is left out.",
    "k": "How many results of a question count.",
    "key": "The name under which it is remembered, unique in its scope: deploy-steps, preference/editor.",
    "keys": "The keys of memories.",
    "label": "Only edges of this type, or of these.",
    "limit": "At most this many results.",
    "links": "What it speaks of: citations (duckkb://TYPE/IDENTITY) or addresses.",
    "lines": "Of a document: at most this many lines.",
    "graph": "The graph, by the type of its nodes.",
    "merge": "Change only the fields given, each as a whole; otherwise the record is replaced.",
    "min_score": "Only documents with at least this score, which lies in 0..1.",
    "mode": "How to search: by meaning (similar), words (match), both (hybrid), or the filter alone (where); by itself as the type's policy says.",
    "model": "Which chat model answers, by its name in the configuration.",
    "most": "Skip files that have more bytes.",
    "new": "The identity that the record gets.",
    "old": "The identity that the record has.",
    "only": "Only these types or records: TYPE or TYPE:IDENTITY.",
    "ops": "Only these kinds of change, and no findings.",
    "pattern": "A glob over paths of documents (runbooks/**/*.md), or paths and docids with commas between them.",
    "provenance": "Say which commit each record's line is from, and how to cite it.",
    "query": "The question, in words.",
    "question": "The question, in words.",
    "records": "One record as an object of its fields, or a list of them. An edge has `from` and `to`.",
    "range": "What is compared: BASE with the files as they are, BASE..HEAD, or BASE...HEAD.",
    "rerank_timeout_ms": "How long a reranker may take, in milliseconds.",
    "searches": "Instead of the question: searches that are answered together, each in its lane.",
    "scope": "Whose memories: a tenant, or what lies below one (ann, ann/work). Without it the one that all others lie below.",
    "since": "Only what a change brings: of the files since they parted from a revision, or of a range BASE..HEAD or BASE...HEAD.",
    "source": "Where it was learned: a conversation, a file, a person.",
    "stage": "Give parts without open conflicts to git's index.",
    "start": "Where the path starts: [type, identity].",
    "statement": "One read-only SELECT. Tables: one per node type and edge label, search_index, search_cache.",
    "tags": "Words that it is kept under.",
    "text": "What is remembered, at most 20,000 characters.",
    "timeout": "How many seconds it may take.",
    "type": "A type or collection, by its name, table or label.",
    "types": "Only records and documents of these types and collections.",
    "vector": "The question as a vector; with a query too, the search is hybrid.",
    "where": "Only records whose fields satisfy this condition, before any ranking: topic = 'storage' AND year > 2019.",
    "allow_shrink": "Even if it deletes more records of a table than `limits` in config.yaml let go: max(20, 10 %).",
}
_DIFFERENT: Mapping[tuple[str, str], str] = {
    ("find", "type"): "A type or collection, by its name, table or label; `all` searches every one.",
    ("list", "after"): "Start behind the record with this identity: the `next` of the page before.",
    ("branches", "after"): "Start behind this branch: the `next` of the page before.",
    ("branches", "branch"): "Only this branch.",
    ("conflicts", "after"): "Start behind the conflict with this name: the `next` of the page before.",
    ("diff", "after"): "Go on where an answer ended: the `after` of its `next`.",
    ("query", "question"): (
        "The question, in words. Several lines are questions each for its lane: `lex:` words that must all be there, `vec:` a "
        "question, `hyde:` an answer as it might stand in a text; `intent:` says what is meant."
    ),
    ("ask", "budget"): "At most about so many tokens of evidence for the model; by itself as the configuration says.",
    ("ask", "limit"): "At most this many records and documents as evidence.",
    ("pack", "budget"): "At most about so many tokens, with everything that stands around the texts.",
    ("pack", "neighbors"): "Behind what is found, the records that are one edge away from it.",
    **{
        (name, "limit"): "At most so many commits of the history, spread over all of it."
        for name in ("growth", "quality")
    },
    ("search", "question"): 'Words: "a phrase", -not, prefix*.',
}

FORM: Mapping[str, Mapping[str, Any]] = {
    "at": {"type": "string", "minLength": 1},
    "fields": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "full": {"type": "boolean", "default": False},
    "provenance": {"type": "boolean", "default": False},
}
"""The schemas of parameters that functions do not take: they choose what of the answer is returned, or the base."""

LONGEST_QUESTION = 20_000
"""The most characters of a question, and of a memory. All of it is embedded, which takes a model some seconds."""

SEARCH: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "enum": ["lex", "vec", "hyde"],
            "description": "lex: words that must all be there; vec: a question; hyde: an answer as it might stand in a text.",
        },
        "query": {"type": "string", "maxLength": LONGEST_QUESTION, "description": "What is looked for."},
    },
    "required": ["type", "query"],
    "additionalProperties": False,
}
LIMITS: Mapping[str, Mapping[str, Any]] = {
    "budget": {"minimum": 2_000, "maximum": 100_000_000},
    "candidates": {"minimum": 0},
    "depth": {"minimum": 1, "maximum": 1_000},
    "document": {"maxLength": 4_096},
    "evaluate": {"minimum": 0, "maximum": 1_000},
    "first": {"minimum": 1},
    "k": {"minimum": 1, "maximum": 1_000},
    "limit": {"minimum": 1, "maximum": 1_000_000_000},
    "lines": {"minimum": 1},
    "min_score": {"minimum": 0},
    "most": {"minimum": 1},
    "pattern": {"maxLength": 20_000},
    "query": {"maxLength": LONGEST_QUESTION},
    "question": {"maxLength": LONGEST_QUESTION},
    "rerank_timeout_ms": {"minimum": 1},
    "searches": {"items": SEARCH},
    "timeout": {"exclusiveMinimum": 0, "maximum": 3_600},
}
TIMES: Mapping[str, float] = {"timeout": 1, "rerank_timeout_ms": 1_000}
"""Parameters that are times, with their units per second; no call may take longer than its deadline."""
_DIFFERENT_LIMITS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("ask", "budget"): {"minimum": 1, "maximum": 1_000_000},
    **{(name, "limit"): {"minimum": 2, "maximum": 1_000_000_000} for name in ("growth", "quality")},
    ("pack", "budget"): {"minimum": 1, "maximum": 1_000_000},
}


def describe_parameter(action: str, name: str) -> str:
    """Return the meaning of a parameter of an action; raises KeyError where it is not documented."""
    return _DIFFERENT.get((action, name)) or DESCRIBED[name]


def limits(action: str, name: str) -> Mapping[str, Any]:
    """Return the limits of an action's parameter beyond its type."""
    if name == "searches":
        from duckkb.search.typed import MOST_QUESTIONS  # imports the parser of questions

        return {**LIMITS[name], "maxItems": MOST_QUESTIONS}
    return _DIFFERENT_LIMITS.get((action, name)) or LIMITS.get(name, {})
