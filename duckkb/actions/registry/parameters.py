"""The meaning and the limits of action parameters: each name once, since it means the same everywhere."""

from collections.abc import Mapping
from typing import Any

NOT_OFFERED = frozenset({"fusion", "expansion"})
"""Parameters of the Python API only, since their values belong to the ontology."""

DESCRIBED: Mapping[str, str] = {
    "after": "Continue after this: the `next` of the previous page.",
    "answers": (
        "Choices: for each conflict its `type`, `identity`, `field` and `etag`, and one of `choose` (ours, theirs, "
        "base, newest), `value`, `record`, and `delete` (true)."
    ),
    "at": "Read the base at a commit, branch or tag.",
    "arch_hints": "Show code near the results in the code graph: in `hints`, or on stderr.",
    "branch": "A branch: all changes that HEAD lacks.",
    "budget": "Approximate limit in bytes; omitted records are counted, and `next` continues.",
    "candidates": "Maximum number of documents that a reranker reads.",
    "cascade": "Also delete the edges of a node.",
    "collections": "Only documents of these collections.",
    "depth": "Maximum number of edges away.",
    "direction": "Direction in which edges are followed.",
    "citation": "A citation, resolved at its commit: duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ, as in `pack` and `ask`.",
    "document": "A document: its path in a collection (guide/install.md, guide/install.md:40), duckkb:// URI, or docid (#3fa9c1).",
    "dry_run": "Write nothing; show what would change.",
    "embed": "Whether to make vectors now, or in a later search or `index build`.",
    "end": "End of the path: [type, identity].",
    "evaluate": "Number of further commits to evaluate, the newest first: each answers all questions.",
    "explain": "Explain each score and rank.",
    "field": "Only this field, or a path below it: names.fr, tags[0].",
    "fields": "Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the "
    "default ones.",
    "first": "For a document: start at this line of its file.",
    "form": "Format of the texts: one Markdown or plain text, or (json) one entry each.",
    "full": "Whole texts instead of matching lines.",
    "intent": "With `searches`: the purpose of the question; it is not searched for.",
    "identities": "The identities of the records, each in the form of `identity`.",
    "identity": "The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]).",
    "if_match": "Only if the record is still at this version: its `_etag`.",
    "ignore": "Fields to ignore: records that differ only in these are left out.",
    "k": "Number of results of a question that count.",
    "key": "The key of the memory, unique in its scope: deploy-steps, preference/editor.",
    "keys": "The keys of memories.",
    "label": "Only edges of this type, or of these.",
    "limit": "At most this many results.",
    "links": "Its subjects: citations (duckkb://TYPE/IDENTITY) or addresses.",
    "lines": "For a document: at most this many lines.",
    "graph": "The type of the graph's nodes.",
    "merge": "Change only the fields given, each as a whole; otherwise the record is replaced.",
    "min_score": "Only documents with at least this score (0 to 1).",
    "mode": "How to search: by meaning (similar), words (match), both (hybrid), or the filter alone (where). "
    "Default: the type's policy.",
    "model": "The chat model that answers, by its name in the configuration.",
    "most": "Skip files with more bytes.",
    "new": "The new identity of the record.",
    "old": "The current identity of the record.",
    "only": "Only these types or records: TYPE or TYPE:IDENTITY.",
    "ops": "Only these kinds of change, and no findings.",
    "pattern": "A glob over paths of documents (runbooks/**/*.md), or paths and docids separated by commas.",
    "provenance": "Show the commit of each record's line, and its citation.",
    "query": "The question, in words.",
    "question": "The question, in words.",
    "records": "One record as an object of its fields, or a list of them. An edge has `from` and `to`.",
    "range": "The versions to compare: BASE with the current files, BASE..HEAD, or BASE...HEAD.",
    "rerank_timeout_ms": "Time limit of a reranker, in milliseconds.",
    "searches": "Instead of the question: searches answered together, each in its lane.",
    "scope": "The owner of the memories: a tenant, or a scope below one (ann, ann/work). Default: the root scope.",
    "since": "Check only a change: the files since the merge base with a revision, or a range BASE..HEAD or BASE...HEAD.",
    "source": "The source: a conversation, a file, a person.",
    "stage": "Give parts without open conflicts to git's index.",
    "start": "Start of the path: [type, identity].",
    "statement": "One read-only SELECT. Tables: one per node type and edge label, search_index, search_cache.",
    "tags": "Tags of the memory.",
    "text": "The text to remember, at most 20,000 characters.",
    "timeout": "Time limit, in seconds.",
    "type": "A type or collection, by its name, table or label.",
    "types": "Only records and documents of these types and collections.",
    "vector": "The question as a vector; with a query too, the search is hybrid.",
    "where": "Only records that match this condition, applied before ranking: topic = 'storage' AND year > 2019.",
    "allow_shrink": "Allow deleting more records of a table than `limits` in config.yaml: max(20, 10 %).",
}
_DIFFERENT: Mapping[tuple[str, str], str] = {
    ("find", "type"): "A type or collection, by its name, table or label; `all` searches every one.",
    ("list", "after"): "Start after the record with this identity: the `next` of the previous page.",
    ("branches", "after"): "Start after this branch: the `next` of the previous page.",
    ("branches", "branch"): "Only this branch.",
    ("conflicts", "after"): "Start after the conflict with this name: the `next` of the previous page.",
    ("diff", "after"): "Continue where an answer ended: the `after` of its `next`.",
    ("query", "question"): (
        "The question, in words. Give several lines to ask each lane separately: `lex:` words that must all occur, "
        "`vec:` a question, `hyde:` a possible answer, `intent:` the purpose of the question."
    ),
    ("ask", "budget"): "Approximate limit of evidence for the model, in tokens. Default: from the configuration.",
    ("ask", "limit"): "At most this many records and documents as evidence.",
    ("pack", "budget"): "Approximate limit in tokens, including the text around the entries.",
    ("pack", "neighbors"): "Add the records one edge away from the results.",
    **{(name, "limit"): "Maximum number of commits, spread over the whole history." for name in ("growth", "quality")},
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
            "description": "lex: words that must all occur; vec: a question; hyde: a possible answer.",
        },
        "query": {"type": "string", "maxLength": LONGEST_QUESTION, "description": "The text to search for."},
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
