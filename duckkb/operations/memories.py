"""The action memory: texts under keys, as records of collections with the policy `memory`, a collection per scope.

A scope is a collection of its own, so its content affects no count and no score of another. A caller who sees a
part of the base (`engine.scoped_base`) has a scope or does not know of it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, Literal

from duckkb.engine.base import Base
from duckkb.engine.scoped_base import narrow_base
from duckkb.ontology.model import NodeType
from duckkb.ontology.names import did_you_mean
from duckkb.operations import record_origins, record_search, record_writes
from duckkb.operations.name_resolution import positive, text_or_none
from duckkb.operations.record_lines import hit_lines, result_object, signature_object
from duckkb.operations.record_lookup import parse_identity
from duckkb.review import history as histories
from duckkb.store.store_database import AccessCounts, Name
from duckkb.types.errors import InvalidRecord, NotFound, UsageError, shell_word
from duckkb.types.queries import Receipt
from duckkb.types.records import Record
from duckkb.types.request_context import Caller

_FIELDS = ("text", "tags", "links", "source")
_FEW = 5
_MOST_SCOPES = 32
"""The most scopes of a tenant, or of the base for callers who see all; beyond it only its operator makes more."""
_LONGEST = 64 - len("memory-")
_DIGEST_END = re.compile(r"-[0-9a-f]{8}$")


def put(
    base: Base,
    key: str,
    text: str,
    *,
    scope: str | None = None,
    tags: Sequence[str] = (),
    links: Sequence[str] = (),
    source: str | None = None,
    if_match: str | None = None,
    dry_run: bool = False,
    embed: bool = True,
) -> Receipt:
    """Store a text under a key, replacing the previous text.

    Raises as `writing.put`, and `errors.NotFound` (E_SCOPE).
    """
    kind = _find_collection(base, scope)
    options = {"tags": list(dict.fromkeys(tags)), "links": list(dict.fromkeys(links)), "source": source}
    record = {
        "scope": kind.scope,
        "key": key,
        "text": text,
        **{name: value for name, value in options.items() if value},
    }
    return record_writes.put(base, kind.name, record, if_match=if_match, dry_run=dry_run, embed=embed)


def make_scope(
    base: Base, caller: Caller, key: str, text: str, *, scope: str | None = None, dry_run: bool = False, **_: Any
) -> bool:
    """Make the collection that a caller's `put` needs, in the whole base; return whether it was made.

    Callers may make their own scope or scopes below it; callers who see all types may make any. A caller has at
    most `_MOST_SCOPES`, and a proposal makes none. Scopes that may not be made are refused by `put` (E_SCOPE).
    Raises `errors.UsageError`, `errors.InvalidRecord` where scope or record are invalid, before anything is
    made.
    """
    caller_scopes = [name for name in _find_scopes(base) if caller.types is None or _is_below(name, caller.tenant)]
    target_scope = scope or (caller.tenant if not caller_scopes else "")
    if (
        base.wiring.proposal is not None
        or dry_run
        or not target_scope
        or target_scope in caller_scopes
        or len(caller_scopes) >= _MOST_SCOPES
    ):
        return False
    if caller.types is not None and not (caller.tenant and _is_below(target_scope, caller.tenant)):
        return False
    from duckkb.ontology.ontology_files import collection_of, define, path_of
    from duckkb.ontology.validation import Validator
    from duckkb.operations.collections import create, resolve_policy

    name = _format_collection_name(target_scope)
    definition = define(name, resolve_policy(base, "memory"), {"scope": target_scope})
    kind, problems = collection_of(definition, path_of(name))
    record = {"scope": target_scope, "key": key, "text": text}
    findings = problems if kind is None else Validator(kind, base.ontology).findings(record)
    if findings:
        raise InvalidRecord(f"nothing was remembered: {findings[0].message}", "E_SCHEMA", findings=tuple(findings))
    create(base, name, definition, narrow_base(base, caller.types, tenant=caller.tenant))
    return True


def search(
    base: Base,
    query: str,
    *,
    scope: str | None = None,
    mode: Literal["similar", "match", "hybrid"] | None = None,
    limit: int = 10,
) -> dict[str, Any]:
    """Return the memories of a scope that match a question, best first, with how often each was `_accessed`.

    Raises as `asking.find`, and `errors.NotFound` (E_SCOPE).
    """
    kind = _find_collection(base, scope)
    if not (text_or_none(query, "a query") or "").strip():
        raise UsageError("give a question", suggestion="duckkb memory search QUESTION")
    result = record_search.find(base, kind.name, query, mode=mode, limit=limit)
    lines = [form for _, form in hit_lines(result, full=True)]
    counts = _count_accesses(base, [_name(line) for line in lines])
    return result_object(result, [{**line, "_accessed": counts[_name(line)]} for line in lines])


def history(base: Base, key: str, *, scope: str | None = None, limit: int = 100) -> dict[str, Any]:
    """Return the versions of a memory in git, the newest first, deletions included.

    Callers who see a part are not told of commits, which hash the whole base. Raises `errors.NotFound`,
    `errors.StateError` (E_GIT).
    """
    positive(limit)
    kind = _find_collection(base, scope)
    _, stored_identity = parse_identity(base, kind.name, [kind.scope or "", key])
    # Only the folder of this type is searched.
    source = record_origins.ground(base.whole)
    changes = histories.changes(source, kind, stored_identity, base.tree)
    if not changes:
        raise _report_missing_key(base, kind, key)
    versions = [_describe_version(entry, is_part=base.is_narrowed) for entry in changes[:limit]]
    return {"scope": kind.scope, "key": key, "versions": versions, "truncated": len(changes) > limit}


def stats(base: Base, *, scope: str | None = None) -> dict[str, Any]:
    """Return counts of a scope, or of each scope.

    They are the memories, the newest and the oldest, the most accessed, and the frequency of each tag. Raises
    `errors.NotFound` (E_SCOPE).
    """
    kinds = _find_scopes(base).values() if scope is None else [_find_collection(base, scope)]
    return {"scopes": [_describe_scope(base, kind) for kind in kinds]}


def mark_accessed(base: Base, keys: Sequence[str], *, scope: str | None = None) -> dict[str, Any]:
    """Count an access for each of these memories, on this machine alone.

    Raises `errors.NotFound`, before anything is counted, and `errors.Unavailable` (E_IO).
    """
    kind = _find_collection(base, scope)
    names = []
    for key in dict.fromkeys(keys):
        _, stored_identity = parse_identity(base, kind.name, [kind.scope or "", key])
        row = base.tree.get(kind, stored_identity)
        if row is None:
            raise _report_missing_key(base, kind, key)
        names.append(_name(row.record.fields))
    times = _open_counts(base).add(names)
    accesses = [{"key": key, "accessed": count} for (_, key), count in zip(names, times, strict=True)]
    return {"scope": kind.scope, "marked": accesses}


def _find_scopes(base: Base) -> dict[str, NodeType]:
    """Return the caller's collections of memories by scope."""
    collections = {kind.scope: kind for kind in base.ontology.nodes.values() if kind.scope is not None}
    return dict(sorted(collections.items()))


def _find_collection(base: Base, scope: str | None) -> NodeType:
    """Return the collection of a scope; by default that of the scope above all others.

    Raises `errors.NotFound` (E_SCOPE), `errors.UsageError` where several scopes have no common one.
    """
    scopes = _find_scopes(base)
    if scope is None:
        top = [
            candidate for candidate in scopes if all(f"{sibling}/".startswith(f"{candidate}/") for sibling in scopes)
        ]
        if scopes and not top:
            raise UsageError("several scopes exist: name one", suggestion=f"one of {', '.join(islice(scopes, 10))}")
        scope = top[0] if top else None
    if scope in scopes:
        return scopes[scope]
    near = did_you_mean(scope, scopes) if scope else ""
    message = f"no scope {scope!r}"
    if scope is None:
        message = "no scope for memories exists yet; memory_put over MCP creates the one in `scope`"
    raise NotFound(message + (f"; {near}" if near else ""), "E_SCOPE", _suggest_init(scope or "notes"))


def _suggest_init(scope: str) -> str:
    import json

    name = _format_collection_name(scope)
    params = shell_word(json.dumps({"scope": scope}, ensure_ascii=False))
    return f"duckkb col init {name} --policy memory --params {params}"


def _format_collection_name(scope: str) -> str:
    """Return the name of a scope's collection.

    No two scopes share a name, since a clash would reveal the other scope.
    """
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", scope)
    if plain == scope and len(scope) <= _LONGEST and not _DIGEST_END.search(scope):
        return f"memory-{scope}"
    return f"memory-{plain[: _LONGEST - 9]}-{sha256(scope.encode()).hexdigest()[:8]}"


def _is_below(scope: str, tenant: str) -> bool:
    return f"{scope}/".startswith(f"{tenant}/")


def _report_missing_key(base: Base, kind: NodeType, key: str) -> NotFound:
    near = did_you_mean(key, (str(row.record.fields["key"]) for row in base.tree.rows(kind)))
    message = f"nothing is remembered under {key!r} in {kind.scope}" + (f"; {near}" if near else "")
    return NotFound(message, suggestion=f"duckkb list {kind.name}")


def _describe_version(entry: histories.LogEntry, *, is_part: bool) -> dict[str, Any]:
    """Return a version of a memory: its operation, its author and its text, none once it was deleted."""
    by = signature_object(entry.by, entry.is_boundary)
    if is_part:
        by = {"uncommitted": True} if entry.by is None else {}
    line = {**by, "op": entry.change.op} | ({"was": entry.change.was} if entry.change.was is not None else {})
    return (
        line
        if entry.record is None
        else {**line, "updated_at": entry.record.updated_at, **_select_fields(entry.record)}
    )


def _select_fields(record: Record) -> dict[str, Any]:
    return {name: record.fields[name] for name in _FIELDS if name in record.fields}


def _describe_scope(base: Base, kind: NodeType) -> dict[str, Any]:
    records = sorted((row.record for row in base.tree.rows(kind)), key=lambda item: str(item.fields["key"]))
    by_age = sorted(records, key=lambda item: item.updated_at or "")
    counts = _count_accesses(base, [_name(item.fields) for item in records])
    times_by_key = {_name(item.fields)[1]: counts[_name(item.fields)] or 0 for item in records}
    most = sorted(((key, times) for key, times in times_by_key.items() if times), key=lambda item: -item[1])
    tags = Counter(tag for item in records for tag in _list_of(item.fields.get("tags")) if isinstance(tag, str))
    return {
        "scope": kind.scope,
        "collection": kind.name,
        "memories": len(records),
        "newest": [{"key": item.fields["key"], "updated_at": item.updated_at} for item in by_age[: -_FEW - 1 : -1]],
        "oldest": [{"key": item.fields["key"], "updated_at": item.updated_at} for item in by_age[:1]],
        "accessed": None if None in counts.values() else sum(times_by_key.values()),
        "most_accessed": [{"key": key, "accessed": times} for key, times in most[:_FEW]],
        "tags": dict(sorted(tags.items(), key=lambda item: (-item[1], item[0]))),
    }


def _list_of(value: Any) -> list[Any]:
    """Return a list, even where it was edited by hand against the schema."""
    return value if isinstance(value, list) else []


def _name(fields: Mapping[str, Any]) -> Name:
    return str(fields["scope"]), str(fields["key"])


def _count_accesses(base: Base, names: Sequence[Name]) -> Mapping[Name, int | None]:
    """Return how often each memory was accessed; None where that cannot be read."""
    counts = _open_counts(base).read(names)
    return dict.fromkeys(names) if counts is None else counts


def _open_counts(base: Base) -> AccessCounts:
    return AccessCounts(base.wiring.env.state_home, base.whole.root)
