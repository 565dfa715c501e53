"""The list of actions; the command line, MCP, HTTP and the references are checked against it."""

from collections.abc import Mapping

from duckkb.actions.registry.action import Action
from duckkb.actions.registry.schema_forms import TEXT, WHOLE, object_of

_GUARDS = frozenset({"allow_shrink"})
_ALL = (
    Action(
        "find",
        "actions.asking:find",
        "Search by words, by meaning, by a filter, or by several of these. Searches one type or all. The filter is "
        "applied before ranking, so as many results as match come back, up to the limit.",
        "shapes:FOUND",
        "format_hits",
        form=("full", "fields", "provenance", "at"),
    ),
    Action(
        "get",
        "actions.lookup:record_or_document",
        "Get one record or document. Name a record by its type and identity, or by a citation; a document "
        "by its path, URI or docid.",
        "shapes:GOT",
        "gotten",
        form=("fields", "at"),
    ),
    Action(
        "multi_get",
        "actions.documents.reading:multi_get",
        "Get several documents by a glob, or by a list of paths and docids. Larger files are reported as "
        "skipped, with the reason.",
        "shapes:DOCUMENTS",
        "several",
        form=("at",),
    ),
    Action(
        "query",
        "actions.documents.searching:query_documents",
        "Search documents by words and meaning. Reranks results and expands the question if models for that are "
        "configured.",
        "shapes:DOCUMENTS_FOUND",
        "documents",
        form=("at",),
    ),
    Action(
        "search",
        "actions.documents.searching:find_words",
        "Search documents by words, without any model.",
        "shapes:DOCUMENTS_FOUND",
        "documents",
        form=("at",),
    ),
    Action(
        "pack",
        "actions.answering.context_pack:pack_as_object",
        "Pack evidence on a question for a model to answer from. Collects texts of records and documents within a "
        "budget of tokens, each with a citation that `get` resolves.",
        "shapes:PACK",
        form=("at",),
    ),
    Action(
        "ask",
        "actions.answering.ask:ask_as_object",
        "Answer a question with a chat model, from evidence in the base. Each sentence is checked against the texts "
        "that it cites, and marked if they do not support it. Without enough evidence no model is called, and the "
        "nearest records are named.",
        "shapes:ANSWER",
        privileged=frozenset({"model"}),
        form=("at",),
    ),
    Action(
        "list",
        "actions.reading:page",
        "List the records of a type, or those that match a filter. Pages follow the order of identities.",
        "shapes:PAGE",
        "page",
        form=("full", "fields", "at"),
    ),
    Action(
        "count",
        "actions.asking:count",
        "Count the records of a type, or those that match a filter.",
        object_of({"type": TEXT, "count": WHOLE}),
        "count",
        form=("at",),
        section="knowledge",
    ),
    Action(
        "types",
        "actions.reading:types",
        "List the types and collections. Gives the kind, table, identity, searched fields and number of "
        "records of each.",
        "shapes:TYPES",
        "types",
    ),
    Action(
        "schema",
        "actions.reading:schema",
        "Get the JSON Schema of the records of one type.",
        "shapes:SCHEMA",
    ),
    Action(
        "settings",
        "actions.reading:settings",
        "Show how one type is searched and stored. Gives fields by lane, the policy, and effective settings with "
        "their origin.",
        "shapes:SETTINGS",
    ),
    Action(
        "sql",
        "actions.asking:sql",
        "Run one read-only SELECT over the runtime tables.",
        "shapes:ROWS",
        "rows",
    ),
    Action(
        "neighbors",
        "actions.asking:neighbors",
        "Get the records around one node, nearest first. Each has the edge that led to it.",
        "shapes:STEPS",
        "neighbors",
        form=("full", "fields"),
    ),
    Action(
        "path",
        "actions.asking:path",
        "Get a shortest path between two nodes. Each record has the edge that led to it.",
        "shapes:PATH",
        "path",
        form=("full", "fields"),
    ),
    Action(
        "near",
        "actions.asking:near",
        "Get the records most similar in meaning to a record. Compares the vectors of their texts, and first makes "
        "missing ones.",
        "shapes:NEAR",
        "near",
        form=("full", "fields"),
    ),
    Action(
        "citing",
        "actions.asking:find_citing_records",
        "Get the records that cite a record. Finds duckkb://TYPE/IDENTITY of any commit in their texts.",
        "shapes:CITING",
        "project_citing_records",
        form=("full", "fields"),
    ),
    Action(
        "blame",
        "actions.tracing:blame",
        "Show which commit gave each field of a record its value.",
        "shapes:BLAME",
        "blame",
        needs_whole=True,
    ),
    Action(
        "log",
        "actions.tracing:log",
        "Show the history of a record, the newest change first. Also works for a deleted record.",
        "shapes:LOG",
        "log",
        needs_whole=True,
    ),
    Action(
        "why",
        "actions.tracing:why",
        "Explain why a search finds a record, or does not.",
        "shapes:WHY",
        "why",
        form=("at",),
    ),
    Action(
        "check",
        "actions.caring:check",
        "Check the files of the base and report all problems. Each finding has its place and its remedy.",
        "shapes:REPORT",
        "report",
        privileged=frozenset({"since"}),
        lenient=True,
    ),
    Action(
        "diff",
        "actions.diffing:diff_object",
        "Compare two versions, record by record. Shows changes since the last commit, or on a branch.",
        "review_shapes:DIFF",
        privileged=frozenset({"range"}),
    ),
    Action(
        "impact",
        "actions.impact:impact_object",
        "Measure the effect of a change on the judged questions. Missing vectors are made first, which can take long.",
        "review_shapes:IMPACT",
        privileged=frozenset({"range"}),
    ),
    Action(
        "branches",
        "actions.diffing:branches_object",
        "List branches and proposals with changes that HEAD lacks. Gives the number of changed records of each.",
        "review_shapes:BRANCHES",
        lenient=True,
    ),
    Action(
        "conflicts",
        "actions.branches:conflicts",
        "List the open conflicts of a merge, rebase, pick or revert. Gives the values of each side, field by field.",
        "review_shapes:CONFLICTS",
        lenient=True,
        needs_whole=True,
    ),
    Action(
        "resolve",
        "actions.branches:settle",
        "Resolve conflicts by choosing a side or a value. Answers with the conflicts still open.",
        "review_shapes:CONFLICTS",
        "as_is",
        "editor",
        writes=True,
        repeats=False,
        privileged=_GUARDS,
        lenient=True,
        needs_whole=True,
    ),
    Action(
        "status",
        "actions.caring:status",
        "Show the state of this base. Gives its records, its model, and pending work.",
        "shapes:STATUS",
    ),
    Action(
        "arch_status",
        "actions.documents.arch.building:arch_status",
        "Show the state of the code graph. Gives its commit, whether it is current, and whether its command is "
        "configured and trusted.",
        "shapes:ARCH_STATUS",
        needs_whole=True,
    ),
    Action(
        "arch_query",
        "actions.documents.hints:arch_query",
        "Show code near the functions, classes and files of a question.",
        "shapes:ARCH_HINTS",
    ),
    Action(
        "growth",
        "actions.caring:growth",
        "Show record counts and sizes over time.",
        "review_shapes:GROWTH",
        form=("at",),
    ),
    Action(
        "quality",
        "actions.impact:quality",
        "Show how well searches answer the judged questions over time. Gives ranks of expected records and nDCG@10 "
        "by words, by meaning and by both.",
        "review_shapes:QUALITY",
        privileged=frozenset({"evaluate"}),
        form=("at",),
    ),
    Action(
        "put",
        "actions.writing:put",
        "Insert or replace records by their identity, all of them or none. An `_etag` in a record is a "
        "precondition: only that version is replaced.",
        "shapes:RECEIPT",
        "receipt",
        "editor",
        writes=True,
        privileged=_GUARDS,
    ),
    Action(
        "delete",
        "actions.writing:delete",
        "Delete records of a type, all of them or none.",
        "shapes:RECEIPT",
        "receipt",
        "editor",
        writes=True,
        privileged=_GUARDS,
    ),
    Action(
        "rename",
        "actions.writing:rename",
        "Change the identity of a record. Its `__id` stays, and edges that refer to it are rewritten in the "
        "same write.",
        "shapes:RECEIPT",
        "receipt",
        "editor",
        writes=True,
    ),
    Action(
        "memory_put",
        "actions.memory.memories:put",
        "Remember a text under a key, replacing the old text. Store what outlives this conversation: decisions, "
        "preferences, lessons, with links to their subjects. A missing scope of yours is created.",
        "shapes:RECEIPT",
        "receipt",
        "editor",
        writes=True,
        prepare="actions.memory.memories:make_scope",
    ),
    Action(
        "memory_search",
        "actions.memory.memories:search",
        "Search memories by words and by meaning. Searches one scope.",
        "shapes:MEMORIES",
    ),
    Action(
        "memory_history",
        "actions.memory.memories:history",
        "Show earlier versions of a memory, the newest first.",
        "shapes:VERSIONS",
        rows="versions",
    ),
    Action(
        "memory_stats",
        "actions.memory.memories:stats",
        "Show memory statistics: newest, oldest, most accessed, tags. Covers one scope, or each.",
        "shapes:MEMORY_STATS",
        rows="scopes",
    ),
    Action(
        "memory_mark_accessed",
        "actions.memory.memories:mark_accessed",
        "Count an access to memories. The counts appear in stats and search results, on this machine only.",
        "shapes:MARKED",
        writes=True,
        repeats=False,
        rows="marked",
    ),
)

ACTIONS: Mapping[str, Action] = {action.name: action for action in _ALL}
"""The actions by name."""
