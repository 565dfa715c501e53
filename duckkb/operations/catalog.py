"""The list of actions; the command line, MCP, HTTP and the references are checked against it."""

from collections.abc import Mapping

from duckkb.operations.action import Action
from duckkb.operations.response_types import TEXT, WHOLE, object_of

_GUARDS = frozenset({"allow_shrink"})
_ALL = (
    Action(
        "find",
        "operations.record_search:find",
        "Search by words, by meaning, by a filter, or by several of these. Searches one type or all. The filter is "
        "applied before ranking, so as many results as match come back, up to the limit.",
        "response_types:FOUND",
        "format_hits",
        form=("full", "fields", "provenance", "at"),
    ),
    Action(
        "get",
        "operations.document_lookup:record_or_document",
        "Get one record or document. Name a record by its type and identity, or by a citation; a document "
        "by its path, URI or docid.",
        "response_types:GOT",
        "gotten",
        form=("fields", "at"),
    ),
    Action(
        "multi_get",
        "operations.document_lookup:multi_get",
        "Get several documents by a glob, or by a list of paths and docids. Larger files are reported as "
        "skipped, with the reason.",
        "response_types:DOCUMENTS",
        "several",
        form=("at",),
    ),
    Action(
        "query",
        "operations.document_search:query_documents",
        "Search documents by words and meaning. Reranks results and expands the question if models for that are "
        "configured.",
        "response_types:DOCUMENTS_FOUND",
        "documents",
        form=("at",),
    ),
    Action(
        "search",
        "operations.document_search:find_words",
        "Search documents by words, without any model.",
        "response_types:DOCUMENTS_FOUND",
        "documents",
        form=("at",),
    ),
    Action(
        "pack",
        "operations.context_pack:pack_as_object",
        "Pack evidence on a question for a model to answer from. Collects texts of records and documents within a "
        "budget of tokens, each with a citation that `get` resolves.",
        "response_types:PACK",
        form=("at",),
    ),
    Action(
        "ask",
        "operations.ask:ask_as_object",
        "Answer a question with a chat model, from evidence in the base. Each sentence is checked against the texts "
        "that it cites, and marked if they do not support it. Without enough evidence no model is called, and the "
        "nearest records are named.",
        "response_types:ANSWER",
        privileged=frozenset({"model"}),
        form=("at",),
    ),
    Action(
        "list",
        "operations.record_lookup:page",
        "List the records of a type, or those that match a filter. Pages follow the order of identities.",
        "response_types:PAGE",
        "page",
        form=("full", "fields", "at"),
    ),
    Action(
        "count",
        "operations.record_search:count",
        "Count the records of a type, or those that match a filter.",
        object_of({"type": TEXT, "count": WHOLE}),
        "count",
        form=("at",),
        section="knowledge",
    ),
    Action(
        "types",
        "operations.record_lookup:types",
        "List the types and collections. Gives the kind, table, identity, searched fields and number of "
        "records of each.",
        "response_types:TYPES",
        "types",
    ),
    Action(
        "schema",
        "operations.record_lookup:schema",
        "Get the JSON Schema of the records of one type.",
        "response_types:SCHEMA",
    ),
    Action(
        "settings",
        "operations.record_lookup:settings",
        "Show how one type is searched and stored. Gives fields by lane, the policy, and effective settings with "
        "their origin.",
        "response_types:SETTINGS",
    ),
    Action(
        "sql",
        "operations.record_search:sql",
        "Run one read-only SELECT over the runtime tables.",
        "response_types:ROWS",
        "rows",
    ),
    Action(
        "neighbors",
        "operations.record_search:neighbors",
        "Get the records around one node, nearest first. Each has the edge that led to it.",
        "response_types:STEPS",
        "neighbors",
        form=("full", "fields"),
    ),
    Action(
        "path",
        "operations.record_search:path",
        "Get a shortest path between two nodes. Each record has the edge that led to it.",
        "response_types:PATH",
        "path",
        form=("full", "fields"),
    ),
    Action(
        "near",
        "operations.record_search:near",
        "Get the records most similar in meaning to a record. Compares the vectors of their texts, and first makes "
        "missing ones.",
        "response_types:NEAR",
        "near",
        form=("full", "fields"),
    ),
    Action(
        "citing",
        "operations.record_search:find_citing_records",
        "Get the records that cite a record. Finds duckkb://TYPE/IDENTITY of any commit in their texts.",
        "response_types:CITING",
        "project_citing_records",
        form=("full", "fields"),
    ),
    Action(
        "blame",
        "operations.record_origins:blame",
        "Show which commit gave each field of a record its value.",
        "response_types:BLAME",
        "blame",
        needs_whole=True,
    ),
    Action(
        "log",
        "operations.record_origins:log",
        "Show the history of a record, the newest change first. Also works for a deleted record.",
        "response_types:LOG",
        "log",
        needs_whole=True,
    ),
    Action(
        "why",
        "operations.record_origins:why",
        "Explain why a search finds a record, or does not.",
        "response_types:WHY",
        "why",
        form=("at",),
    ),
    Action(
        "check",
        "operations.maintenance:check",
        "Check the files of the base and report all problems. Each finding has its place and its remedy.",
        "response_types:REPORT",
        "report",
        privileged=frozenset({"since"}),
        lenient=True,
    ),
    Action(
        "diff",
        "operations.version_diff:diff_object",
        "Compare two versions, record by record. Shows changes since the last commit, or on a branch.",
        "review_response_types:DIFF",
        privileged=frozenset({"range"}),
    ),
    Action(
        "impact",
        "operations.change_review:impact_object",
        "Measure the effect of a change on the judged questions. Missing vectors are made first, which can take long.",
        "review_response_types:IMPACT",
        privileged=frozenset({"range"}),
    ),
    Action(
        "branches",
        "operations.version_diff:branches_object",
        "List branches and proposals with changes that HEAD lacks. Gives the number of changed records of each.",
        "review_response_types:BRANCHES",
        lenient=True,
    ),
    Action(
        "conflicts",
        "operations.git_branches:conflicts",
        "List the open conflicts of a merge, rebase, pick or revert. Gives the values of each side, field by field.",
        "review_response_types:CONFLICTS",
        lenient=True,
        needs_whole=True,
    ),
    Action(
        "resolve",
        "operations.git_branches:settle",
        "Resolve conflicts by choosing a side or a value. Answers with the conflicts still open.",
        "review_response_types:CONFLICTS",
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
        "operations.maintenance:status",
        "Show the state of this base. Gives its records, its model, and pending work.",
        "response_types:STATUS",
    ),
    Action(
        "arch_status",
        "operations.code_graph:arch_status",
        "Show the state of the code graph. Gives its commit, whether it is current, and whether its command is "
        "configured and trusted.",
        "response_types:ARCH_STATUS",
        needs_whole=True,
    ),
    Action(
        "arch_query",
        "operations.document_search:arch_query",
        "Show code near the functions, classes and files of a question.",
        "response_types:ARCH_HINTS",
    ),
    Action(
        "growth",
        "operations.maintenance:growth",
        "Show record counts and sizes over time.",
        "review_response_types:GROWTH",
        form=("at",),
    ),
    Action(
        "quality",
        "operations.change_review:quality",
        "Show how well searches answer the judged questions over time. Gives ranks of expected records and nDCG@10 "
        "by words, by meaning and by both.",
        "review_response_types:QUALITY",
        privileged=frozenset({"evaluate"}),
        form=("at",),
    ),
    Action(
        "put",
        "operations.record_writes:put",
        "Insert or replace records by their identity, all of them or none. An `_etag` in a record is a "
        "precondition: only that version is replaced.",
        "response_types:RECEIPT",
        "receipt",
        "editor",
        writes=True,
        privileged=_GUARDS,
    ),
    Action(
        "delete",
        "operations.record_writes:delete",
        "Delete records of a type, all of them or none.",
        "response_types:RECEIPT",
        "receipt",
        "editor",
        writes=True,
        privileged=_GUARDS,
    ),
    Action(
        "rename",
        "operations.record_writes:rename",
        "Change the identity of a record. Its `__id` stays, and edges that refer to it are rewritten in the "
        "same write.",
        "response_types:RECEIPT",
        "receipt",
        "editor",
        writes=True,
    ),
    Action(
        "memory_put",
        "operations.memories:put",
        "Remember a text under a key, replacing the old text. Store what outlives this conversation: decisions, "
        "preferences, lessons, with links to their subjects. A missing scope of yours is created.",
        "response_types:RECEIPT",
        "receipt",
        "editor",
        writes=True,
        prepare="operations.memories:make_scope",
    ),
    Action(
        "memory_search",
        "operations.memories:search",
        "Search memories by words and by meaning. Searches one scope.",
        "response_types:MEMORIES",
    ),
    Action(
        "memory_history",
        "operations.memories:history",
        "Show earlier versions of a memory, the newest first.",
        "response_types:VERSIONS",
        rows="versions",
    ),
    Action(
        "memory_stats",
        "operations.memories:stats",
        "Show memory statistics: newest, oldest, most accessed, tags. Covers one scope, or each.",
        "response_types:MEMORY_STATS",
        rows="scopes",
    ),
    Action(
        "memory_mark_accessed",
        "operations.memories:mark_accessed",
        "Count an access to memories. The counts appear in stats and search results, on this machine only.",
        "response_types:MARKED",
        writes=True,
        repeats=False,
        rows="marked",
    ),
)

ACTIONS: Mapping[str, Action] = {action.name: action for action in _ALL}
"""The actions by name."""
