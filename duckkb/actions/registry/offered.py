"""The list of what may be asked of a base from outside: the command line, MCP, HTTP and the references are held against it."""

from collections.abc import Mapping

from duckkb.actions.registry import answers, shapes
from duckkb.actions.registry.action import Action

_GUARDS = frozenset({"allow_shrink"})
_ALL = (
    Action(
        "find",
        "actions.asking:find",
        "Search the records of a type, or of all, by words, by meaning, by a filter, or by several of these. A filter is "
        "applied before ranking: as many results as match, up to the limit.",
        shapes.FOUND,
        answers.found,
    ),
    Action(
        "get",
        "actions.documents.reading:record_or_document",
        "Get one record by its type and identity, or one document by its path, URI or docid.",
        shapes.GOT,
        answers.as_is,
    ),
    Action(
        "multi_get",
        "actions.documents.reading:multi_get",
        "Get several documents: of a glob, or of a list of paths and docids. Larger files come as skipped, with why.",
        shapes.DOCUMENTS,
        answers.several,
    ),
    Action(
        "query",
        "actions.documents.searching:query_documents",
        "Search documents by words and by meaning, fused. Reranked, and the question expanded, where models for that are "
        "configured.",
        shapes.DOCUMENTS_FOUND,
        answers.documents,
    ),
    Action(
        "search",
        "actions.documents.searching:find_words",
        "Search documents by words, without any model.",
        shapes.DOCUMENTS_FOUND,
        answers.documents,
    ),
    Action(
        "list",
        "actions.reading:page",
        "List the records of a type in the order of their identities, a page at a time.",
        shapes.PAGE,
        answers.page,
    ),
    Action(
        "types",
        "actions.reading:types",
        "List the types and collections. Each with its kind, table, identity, searched fields and number of records.",
        shapes.TYPES,
        answers.types,
    ),
    Action(
        "schema",
        "actions.reading:schema",
        "Get the JSON Schema of the records of one type.",
        shapes.SCHEMA,
        answers.as_is,
    ),
    Action(
        "sql",
        "actions.asking:sql",
        "Run one read-only SELECT over the runtime tables.",
        shapes.ROWS,
        answers.rows,
    ),
    Action(
        "neighbors",
        "actions.asking:neighbors",
        "Get the records around one node, nearest first, each with the edge that led to it.",
        shapes.STEPS,
        answers.neighbors,
    ),
    Action(
        "path",
        "actions.asking:path",
        "Get a shortest path between two nodes, record by record, each with the edge that led to it.",
        shapes.PATH,
        answers.path,
    ),
    Action(
        "why",
        "actions.tracing:why",
        "Say why a search finds a record where it does, or does not find it.",
        shapes.WHY,
        answers.why,
    ),
    Action(
        "check",
        "actions.caring:check",
        "Report everything that is wrong in the files of the base. Each finding with its place and what mends it.",
        shapes.REPORT,
        answers.report,
    ),
    Action(
        "diff",
        "actions.diffing:diff_object",
        "Say what became of each record since the last commit.",
        shapes.DIFF,
        answers.as_is,
        privileged=frozenset({"range"}),
    ),
    Action(
        "status",
        "actions.caring:status",
        "Say what this base is and in what state: its records, its model, and what is still to be done.",
        shapes.STATUS,
        answers.as_is,
    ),
    Action(
        "put",
        "actions.writing:put",
        "Insert or replace records by their identity, all of them or none. An `_etag` in a record is a precondition: it "
        "is only written over that version.",
        shapes.RECEIPT,
        answers.receipt,
        "editor",
        writes=True,
        privileged=_GUARDS,
    ),
    Action(
        "delete",
        "actions.writing:delete",
        "Delete records of a type, all of those named or none.",
        shapes.RECEIPT,
        answers.receipt,
        "editor",
        writes=True,
        privileged=_GUARDS,
    ),
    Action(
        "rename",
        "actions.writing:rename",
        "Give a record another identity. Its `__id` stays, and the edges that name it are rewritten in the same write.",
        shapes.RECEIPT,
        answers.receipt,
        "editor",
        writes=True,
    ),
)

ACTIONS: Mapping[str, Action] = {action.name: action for action in _ALL}
"""By name."""
