"""Lines of other programs, by the line that does the same here: words in another order, a type or a file that a base has."""

import difflib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from msgspec import Struct

from duckkb.cli.command_words import (
    CONDITIONS,
    LIMITS,
    Line,
    base_root,
    base_types,
    find_first_identity,
    find_first_value,
    find_fitting_type,
    find_option_value,
    find_record_types,
    is_revision,
    type_names,
)
from duckkb.cli.suggestions import OF_GIT, VERBS
from duckkb.cli.verb_list import BY_NAME
from duckkb.types.errors import shell_word

_COUNT_BY = "sql 'SELECT {FIELD}, count(*) AS count FROM {TYPE}{WHERE} GROUP BY {FIELD} ORDER BY count DESC{LIMIT}'"
_SORT = "sql 'SELECT * FROM {TYPE}{WHERE} ORDER BY {ORDER} LIMIT {ROWS}'"
_GREP = "grep|rg|ag|ack|egrep|fgrep"
_SEARCH = f"{_GREP}|match|lookup|search|vsearch|query"
_FILTER = "find|list|ls|get|filter|where|select|rows|count"
_IMPORT = "insert|upsert|bulk|_bulk|index|create|add|load|ingest|save|apply|replace"
_PROPOSAL = "pr|prs|mr|proposal|proposals"
_EXAMPLE = """'{{"{KEY}": "..."}}' --dry-run"""
_DELETE = "xargs -r -d '\\n' duckkb delete {TYPE}"

_DATA_IDS = "jq -r .{KEY}"

_ROWS = {
    # words in another order, or without the type
    "import FILE TYPE": "import {TYPE} {FILE} ...",
    "delete|log|blame|get RECORD": "{0} {RECORD} ...",
    "delete|log|blame|get ID_FIRST TYPE": "{0} {TYPE} {ID_FIRST} ...",
    "rename RECORD WORD": "rename {RECORD} {WORD} ...",
    "rename TYPE ID to|as|into WORD": "rename {TYPE} {ID} {WORD} ...",
    "graph neighbors|near|citing RECORD": "graph {1} {RECORD} ...",
    "graph path|shortest-path|shortest RECORD RECORD2": "graph path {RECORD} {RECORD2} ...",
    "graph shortest-path|shortest TYPE ID TYPE2 ID2": "graph path {TYPE} {ID} {TYPE2} {ID2} ...",
    "path|shortest-path|route RECORD RECORD2": "graph path {RECORD} {RECORD2} ...",
    "path|shortest-path|route TYPE ID TYPE2 ID2": "graph path {TYPE} {ID} {TYPE2} {ID2} ...",
    "graph path|shortest-path|shortest TYPE ID ID2": "graph path {TYPE} {ID} {TYPE} {ID2} ...",
    "graph neighbors|near|citing EDGE_TYPE RECORD": "graph {1} {RECORD} ...",
    "delete|log|blame|get EDGE_TYPE WORD WORD2": "{0} {EDGE_TYPE} {PAIR} ...",
    "delete|log|blame|get EDGE_TYPE WORD": """list {EDGE_TYPE} -w "\\"from\\" = '{WORD}'" """,
    "graph traverse|walk|expand|show|links|edges TYPE ID": "graph neighbors {TYPE} {ID} ...",
    "why|explain TYPE ID TEXT": "why {TYPE} {ID} {TEXT} ...",
    "why TYPE TOPIC ID": "why {TYPE} {ID} {TOPIC} ...",
    "why RECORD TEXT": "why {RECORD} {TEXT} ...",
    "why TOPIC RECORD": "why {RECORD} {TOPIC} ...",
    "why|explain TYPE MISSING": "find {TYPE} {MISSING} --explain",
    "pack|ask TYPE TEXT": "{0} {TEXT} --type {TYPE} ...",
    # rows and columns
    "get|mget|multi-get|show TYPE ID ID2": """list {TYPE} -w "{KEY} IN ('{ID}', '{ID2}')" ...""",
    "get|show TYPE ID FIELD": "get {TYPE} {ID} --fields {FIELD} ...",
    "show|describe|inspect|explain|view|cat|print TYPE ID": "get {TYPE} {ID} ...",
    "show|describe|inspect|view|cat|print RECORD": "get {RECORD} ...",
    "count|delete TYPE where CONDITION": "{0} {TYPE} -w {CONDITION} ...",
    f"{_FILTER} TYPE where CONDITION": "list {TYPE} -w {CONDITION} ...",
    "count TYPE by FIELD": _COUNT_BY,
    "count TYPE CONDITION": "count {TYPE} -w {CONDITION} ...",
    f"{_FILTER} TYPE CONDITION": "list {TYPE} -w {CONDITION}",
    "delete|rm TYPE CONDITION": f"find {{TYPE}} -w {{CONDITION}} --fields {{KEY}} -l 1000000 | jq -r .{{KEY}} | {_DELETE}",
    "list|head|rows|tail TYPE NUMBER": "list {TYPE} -l {NUMBER} ...",
    "list|head|rows TYPE FIELDS": "list {TYPE} --fields {FIELDS} ...",
    "ls|dir|browse DOCUMENTS": "ls {DOCUMENTS} ...",
    "ls|dir|browse TYPE": "list {TYPE} ...",
    "stats|stat|summary|length TYPE": "count {TYPE} ...",
    "wc|_count|size TYPE": "count {TYPE}",
    "tail|recent|latest|newest TYPE": "sql 'SELECT * FROM {TYPE}{WHERE} ORDER BY __updated_at DESC LIMIT {ROWS}'",
    "distinct|uniq|unique|facet|facets|group|groupby|group-by|aggregate|aggs|histogram TYPE FIELD": _COUNT_BY,
    "distinct|uniq|unique|facet|facets|group|groupby|group-by|aggregate|aggs|histogram FIELD TYPE": _COUNT_BY,
    "sort|order TYPE ORDER": _SORT,
    "sort|order TYPE by ORDER": _SORT,
    "sort|order TYPE": "list {TYPE} ...",
    "jq WORD TYPE": "export {TYPE} | jq -c {WORD}",
    "jq WORD FILE": "jq -c {WORD} {FILE}",
    "export|dump TYPE NEW_FILE": "export {TYPE} > {NEW_FILE}",
    "dump|archive": "backup create",
    # searches
    f"{_GREP} WORD .": "find all {WORD} ...",
    f"{_GREP} WORD": "find all {WORD}",
    "_search TEXT": "find all {TEXT} ...",
    "semantic|meaning|embedding|vector TYPE TEXT": "find {TYPE} {TEXT} -s ...",
    "semantic|meaning TEXT": "find all {TEXT} -s ...",
    "vector search|query|find TYPE TEXT": "find {TYPE} {TEXT} -s ...",
    "explain|debug TEXT": "find all {TEXT} --explain ...",
    "exec|psql|duckdb|sqlite3|mysql TYPE": "sql 'SELECT * FROM {TYPE} LIMIT 10'",
    f"{_SEARCH}|find WORD TYPE": "find {TYPE} {WORD} ...",
    f"{_SEARCH}|find WORD in|from TYPE": "find {TYPE} {WORD} ...",
    f"{_SEARCH} TYPE TEXT": "find {TYPE} {TEXT} ...",
    "find|grep|search TYPES TEXT": "find all {TEXT}{OPTIONS} -l 1000000 | jq -sc {TYPES}",
    "find . GLOB": "multi-get {GLOB}",
    "similar|nearest|recommend|near|like|mlt|more-like-this TYPE ID": "graph near {TYPE} {ID} ...",
    "similar|nearest|recommend|near|like|mlt|more-like-this RECORD": "graph near {RECORD} ...",
    # writes
    f"{_IMPORT} TYPE DATA": "import {TYPE} {DATA} ...",
    f"{_IMPORT} DATA": "import {TYPE} {DATA}",
    "delete|rm DATA": f"{_DATA_IDS} {{DATA}} | {_DELETE} --cascade --allow-shrink --dry-run",
    "create|make|new table|collection|type WORD": "col init {WORD} --policy knowledge-base",
    "create|create-table|create-collection|new NEW_TYPE": "col init {NEW_TYPE} --policy knowledge-base",
    "insert|put|add|upsert into TYPE RECORD_JSON": "put {TYPE} {RECORD_JSON} ...",
    "insert|replace|put|add|upsert|merge into TYPE *": f"put {{TYPE}} {_EXAMPLE}",
    "import TOPIC PAGES": "collection add {PAGES} --name {TOPIC}",
    "create|insert|add|new TYPE": f"put {{TYPE}} {_EXAMPLE}",
    "drop|drop-table|rm|remove|delete table|collection TYPE": "col rm {TYPE}",
    "drop|drop-table|rm|rmdir TYPE": "col rm {TYPE}",
    "delete from TYPE where TEXT": f"find {{TYPE}} -w {{TEXT}} --fields {{KEY}} -l 1000000 | jq -r .{{KEY}} | {_DELETE} --dry-run",
    "update TYPE set ASSIGNMENT where TEXT": "list {TYPE} -w {TEXT} --fields {KEY} -l 1000000 | jq -c {ASSIGNMENT} | duckkb put {TYPE} --batch --merge --dry-run",
    "delete from TYPE": f"export {{TYPE}} | jq -r .{{KEY}} | {_DELETE} --cascade --allow-shrink --dry-run",
    "truncate|empty|clear TYPE": f"export {{TYPE}} | jq -r .{{KEY}} | {_DELETE} --cascade --allow-shrink --dry-run",
    "cp|copy|duplicate TYPE ID WORD": "export {TYPE} | jq -c {COPY} | duckkb put {TYPE} -",
    "link|connect|relate|join RECORD RECORD2": "put {EDGE} {ENDS}",
    "link|connect|relate|join TYPE ID TYPE2 ID2": "put {EDGE} {ENDS}",
    "put|insert|add EDGE_TYPE EDGE_JSON": "put {EDGE_TYPE} {EDGE_JSON} ...",
    "put TYPE RECORD_JSON": "put {TYPE} {RECORD_JSON} ...",
    "put|insert|add EDGE_TYPE WORD WORD2": "put {EDGE_TYPE} {ENDS} ...",
    # git and its forges
    "get|show|cat VERSION": "get {VERSION} ...",
    "get TYPE AT": "get {TYPE} {AT} ...",
    "show|view|log REF": "diff {REF}~1..{REF}",
    "diff TYPE ID *": "log {TYPE} {ID}",
    "backup restore|verify latest|newest|last": "backup {1}",
    "diff TYPE": "diff -- {TYPE} ...",
    "diff REF TYPE": "diff {REF} -- {TYPE} ...",
    "diff RANGE TYPE": "diff {RANGE} -- {TYPE} ...",
    "diff REF TYPE ID": "log {TYPE} {ID}",
    "blame|annotate FILE": "git blame {FILE}",
    "log|history FILE": "git log --oneline -n 10 -- {FILE}",
    "blame|annotate|log|history PATH_OF_TYPE": "list {PATH_OF_TYPE}",
    "annotate TYPE ID": "blame {TYPE} {ID} ...",
    "add PATH": "git add {PATH}",
    "cherry-pick|reflog|worktree|bisect|rev-parse|rev-list|shortlog|describe-tag *": "git {0} {REST}",
    "git GIT *": "git {GIT} {REST} ...",
    f"{_PROPOSAL}": "branches",
    f"{_PROPOSAL} list|ls|status|all *": "branches",
    f"{_PROPOSAL} view|show|review|checks|get WORD": "review {WORD}",
    f"{_PROPOSAL} diff WORD": "diff HEAD...{WORD}",
    f"{_PROPOSAL} merge|accept WORD": "merge {WORD}",
    f"{_PROPOSAL} checkout|switch WORD": "git checkout {WORD}",
    f"{_PROPOSAL} create|new|open *": "propose --branch topic put {FIRST} " + _EXAMPLE,
    f"review {_PROPOSAL}|list|ls|all|branches": "branches",
    "issue|issues *": "check",
    "conflict|conflicts *": "resolve --list",
    "repo|project|cluster|system info|view|status|show": "status",
    "repo|cluster-info|whoami|pwd|env|top": "status",
    # types, pages and tasks under other names
    "list|show|get|ls types|type|all|everything|classes|indices": "schema",
    "list|get|ls tables": "schema",
    "list|show|get|ls collections|cols|databases": "col list",
    f"list|show|get|ls branches|branch|{_PROPOSAL}": "branches",
    "list|show|get|ls policies|policy": "policy list",
    "types|schemas|edge|edges|edge-types list|ls|show": "schema",
    "schema|schemas list|ls|all|show": "schema",
    "schema|schemas show|get|describe|print|view TYPE": "schema {TYPE}",
    "ps|images|ll|tree|dir|api-resources|indices|_cat/indices|dt|\\dt|\\d|\\l|.databases": "schema",
    "\\d|d|desc|.indexes TYPE": "schema {TYPE}",
    "enable-fts|fts TYPE *": "schema {TYPE}",
    "du|df|size|usage|analyze|analyze-tables|vacuum-analyze": "growth",
    "system df|du": "growth",
    "build|make|compile|optimize *": "index build",
    "migrate|switch|switch-model": "index migrate ...",
    "config get|set|view|unset|show SETTING *": "config show | jq -c {SETTING}",
    "gc|vacuum|prune|clean|purge": "cleanup --dry-run",
    "fsck|audit|lint *": "check",
    "collection update|sync|refresh|reindex|scan *": "update {REST}",
    "snapshot TYPE": "col snapshot {TYPE}",
    "memory set|add|save|remember WORD WORD2 TEXT": "memory put {WORD2} {TEXT} --scope {WORD} ...",
    "memory set|add|save|remember WORD TEXT": "memory put {WORD} {TEXT} ...",
    "memory set|add|save|remember TEXT": "memory put note {TEXT} ...",
    "user|users|token|tokens|login|auth|accounts *": "tenant list",
    "stop|kill|shutdown|down": "serve stop",
    "mcp start|serve|run|stdio|up": "mcp ...",
    "man|docs|doc|manual|guide|usage VERB": "help {VERB}",
    "help|man TYPE": "schema {TYPE}",
    "man|docs|doc|manual|guide|tutorial|readme|quickstart|examples *": "--skill",
    "completion|completions|autocomplete|shell-completion SHELL": "env _DUCKKB_COMPLETE={SHELL}_source duckkb",
    # a type where a verb is expected
    "EXACT_TYPE": "list {EXACT_TYPE} ...",
    "EXACT_TYPE ID": "get {EXACT_TYPE} {ID} ...",
    "EXACT_TYPE VERB *": "{VERB} {EXACT_TYPE} {REST} ...",
    "EXACT_TYPE TEXT": "find {EXACT_TYPE} {TEXT} ...",
}
"""Lines without their options, by the line that is meant: words in small letters stand for themselves, those in capitals for
what `_Matcher` says, `*` for the rest. A number is the word at this place; `...` keeps the options of the line."""
_FIELD = re.compile(r"[A-Za-z_][\w.]*")
_COMPARISON = re.compile(r"([A-Za-z_][\w.]*)\s*(==?|!=|<>|<=|>=|<|>)\s*(\S.*)")
_DATA = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_ENDS = {
    **dict.fromkeys(("src", "source", "start", "from_id", "source_id", "subject"), "from"),
    **dict.fromkeys(("dst", "dest", "target", "end", "to_id", "target_id", "object"), "to"),
}
_OF_GIT_HERE = ("add", "blame", "diff", "grep", "log", "merge", "mv", "restore", "revert", "rm", "show", "status")
"""Commands of git beside `OF_GIT` that are verbs, or words for verbs, where `git` does not stand before them."""
_NEAR = 0.8
_GROUPS = ("graph", "col", "memory", "policy", "index", "tenant", "serve")
_VALUED = ("--limit", "--where", "-w", "--fields", "--format", "--at", "--since", "--depth", "--scope", "--branch")
"""Options that have a value wherever they stand."""
_AFTER_OPTIONS = frozenset(["NUMBER", "FIELD", "FIELDS", "ORDER"])
"""What a word is not that stands behind an option which is left out."""
_FLAGS = ("--dry-run", "--merge", "--json", "--full", "--stat")
"""Options that have none; the first is kept wherever it stands."""
_NOT_SHELL = ("git ", "jq ", "env ")
_Value = str | tuple[str, ...]


class _Rewriting(Struct, frozen=True):
    pattern: tuple[str, ...]
    meaning: str


_TABLE = [_Rewriting(tuple(pattern.split()), meaning.strip()) for pattern, meaning in _ROWS.items()]


def rewrite(ctx: click.Context, args: Sequence[str]) -> Iterator[Line | str]:
    """The lines that a line of another program may mean here, the likeliest first; a pipe or a command of git as a text."""
    meanings: list[Line | str] = []
    matcher = _Matcher(ctx)
    for plain, options in _iter_readings([word for word in args if word]):
        is_whole = len(plain) + len(options) == len(args)
        for row in _TABLE:
            if not is_whole and not _AFTER_OPTIONS.isdisjoint(row.pattern):
                continue
            values = matcher.match(row.pattern, plain)
            if values is None or (meaning := _fill(row.meaning, values, options)) is None:
                continue
            if meaning not in meanings and meaning != [*args]:
                meanings.append(meaning)
                yield meaning


def find_command(ctx: click.Context, args: Sequence[str]) -> str:
    """The verb, or the whole command of a shell, that a line of another program means; empty where it is none."""
    meaning = next(rewrite(ctx, args), "")
    if isinstance(meaning, str):
        return meaning.removeprefix("duckkb ")
    return " ".join(meaning[: 2 if meaning[0] in _GROUPS else 1])


def _iter_readings(args: Sequence[str]) -> Iterator[tuple[Line, Line]]:
    """A line as words and options: each option with the word behind it as its value, then those alone that have one here, and
    without the others, of which nobody can tell."""
    if "--" in args or not args:
        return
    plain, options = _split_options(args, lambda option: option not in _FLAGS)
    plain_words, valued = _split_options(args, _VALUED.__contains__)
    readings = [(plain, options)]
    if options:
        readings.append((plain_words, [word for word in valued if word in (*_FLAGS, *_VALUED) or word[:1] != "-"]))
    yield from reversed(readings) if args[0] in _GREP.split("|") else readings


def _split_options(args: Sequence[str], has_value: Callable[[str], bool]) -> tuple[Line, Line]:
    plain: Line = []
    options: Line = []
    for before, word in zip(("", *args), args, strict=False):
        is_value = before[:1] == "-" and "=" not in before and has_value(before)
        (options if re.match("-.", word) or is_value else plain).append(word)
    return plain, options


def _fill(meaning: str, values: Mapping[str, _Value], options: Line) -> Line | str | None:
    """The line of a row; None where a value lacks that it needs."""
    keeps_options, limit = meaning.endswith("..."), find_first_value(options, LIMITS)
    condition = find_first_value(options, CONDITIONS)
    values = {**values, "WHERE": f" WHERE {condition}" if condition else "", "ROWS": limit if limit.isdigit() else "10"}
    values |= {"LIMIT": f" LIMIT {limit}" if limit.isdigit() else "", "OPTIONS": ("", *options) if options else ()}
    if "TYPES" in values:
        values["TYPES"] = f"[.[] | select({values['TYPES']})][:{values['ROWS']}][]"
    template = meaning.removesuffix("...")
    if re.search(r" [|>] ", template) or template.startswith(_NOT_SHELL):
        if template.startswith("git ") and (base := values.get("BASE")):
            template = f"git -C {{BASE}}{template[3:]}" if base else template
        try:
            text = template.format(*values["WORDS"], **{name: _quote(value) for name, value in values.items()}).strip()
        except KeyError:
            return None
        kept_options = (
            options if keeps_options else ["--dry-run"] if "--dry-run" in options and "duckkb " in text else []
        )
        text = " ".join([text, *map(shell_word, kept_options)])
        return text if template.startswith(_NOT_SHELL) else f"duckkb {text}"
    line: Line = []
    for word in shlex.split(template):
        if re.fullmatch(r"\{[A-Z]\w*\}", word):
            if (value := values.get(word[1:-1])) is None:
                return None
            line += [value] if isinstance(value, str) else value
            continue
        try:
            line.append(word.format(*values["WORDS"], **values))
        except KeyError:
            return None
    form = find_option_value(options, "--format")
    kept_options = ["--dry-run"] * ("--dry-run" in options and "--dry-run" not in line) + ["--format", form] * bool(
        form
    )
    at = line.index("--") if "--" in line else len(line)
    return [*line[:at], *(options if keeps_options else kept_options), *line[at:]]


def _quote(value: _Value) -> str:
    return shell_word(value) if isinstance(value, str) else " ".join(word and shell_word(word) for word in value)


class _Matcher:
    """What the capitals of a pattern stand for, in the base that a line is about."""

    def __init__(self, ctx: click.Context) -> None:
        self._ctx = ctx
        self._types_by_identity: dict[str, list[str]] = {}

    def match(self, pattern: Sequence[str], words: Sequence[str]) -> dict[str, _Value] | None:
        """The values of a pattern by their names; None where the words are none of it."""
        has_rest = pattern[-1] == "*"
        parts = pattern[:-1] if has_rest else pattern
        takes_all = parts[-1] in ("TEXT", "CONDITION")
        if len(words) < len(parts) or (len(words) > len(parts) and not (has_rest or takes_all)):
            return None
        terms = [*words[: len(parts)]]
        if takes_all:
            terms[-1] = " ".join(words[len(parts) - 1 :])
        if any(part.lower() == part and word not in part.split("|") for part, word in zip(parts, terms, strict=True)):
            return None
        values: dict[str, _Value] = {"WORDS": tuple(words), "REST": tuple(words[len(parts) :])}
        for part, word in zip(parts, terms, strict=True):
            if part.lower() == part:
                continue
            name = part.rstrip("2")
            reader: Callable[[str, Mapping[str, _Value]], _Value | None] = getattr(self, f"_read_{name.lower()}")
            if (
                value := reader(
                    word, {**values, "AT_TYPE": values.get("TYPE2", values.get("TYPE", values.get("EXACT_TYPE", "")))}
                )
            ) is None:
                return None
            values[part] = value
        return self._add_facts(values)

    def _add_facts(self, values: dict[str, _Value]) -> dict[str, _Value]:
        """What follows of the values: the key of the type, the edge between two records, the first type of a base."""
        kinds = {kind.name: kind for kind in base_types(self._ctx)}
        nodes = [kind for kind in kinds.values() if kind.kind == "node" and not kind.source]
        if first := next((kind for kind in nodes if kind.is_collection), nodes[0] if nodes else None):
            values["FIRST"] = first.name
        kind = kinds.get(str(values.get("TYPE", ""))) or first
        if kind is not None and len(kind.identity_fields) == 1:
            values["KEY"] = kind.identity_fields[0]
        if "KEY" in values and "ID" in values and "WORD" in values:
            old, new = (json.dumps(values[name], ensure_ascii=False) for name in ("ID", "WORD"))
            values["COPY"] = f"select(.{values['KEY']} == {old}) | .{values['KEY']} = {new}"
        if "KEY" in values and "ASSIGNMENT" in values:
            values["ASSIGNMENT"] = f"{{{values['KEY']}, {values['ASSIGNMENT']}}}"
        ends = [values.get(name) for name in ("RECORD", "RECORD2")]
        pairs = [end for end in ends if isinstance(end, tuple)] or [
            (str(values[f"TYPE{at}"]), str(values[f"ID{at}"]))
            for at in ("", "2")
            if f"TYPE{at}" in values and f"ID{at}" in values
        ]
        if len(pairs) == 2:
            values["ENDS"] = json.dumps({"from": pairs[0][1], "to": pairs[1][1]}, ensure_ascii=False)
            for edge in kinds.values():
                if edge.kind == "edge" and pairs[0][0] in edge.from_types and pairs[1][0] in edge.to_types:
                    values["EDGE"] = edge.name
        elif "EDGE_TYPE" in values and "WORD2" in values:
            values["PAIR"] = json.dumps([values["WORD"], values["WORD2"]], ensure_ascii=False)
            values["ENDS"] = json.dumps({"from": values["WORD"], "to": values["WORD2"]}, ensure_ascii=False)
        if "DATA" in values and "TYPE" not in values:
            stem = Path(str(values["DATA"])).stem
            values["TYPE"] = self._read_type(stem, {}) or stem
        if base := self._ctx.find_root().params.get("kb"):
            values["BASE"] = base
        return values

    def _find_record_types(self, identity: str) -> list[str]:
        if identity not in self._types_by_identity:
            self._types_by_identity[identity] = find_record_types(self._ctx, identity)
        return self._types_by_identity[identity]

    def _read_type(self, word: str, _: Mapping[str, _Value]) -> str | None:
        names = {name.lower(): name for name in type_names(self._ctx)}
        near = difflib.get_close_matches(word.rstrip("/").lower(), names, 1, _NEAR) if word not in BY_NAME else []
        return names[near[0]] if near else None

    def _read_documents(self, word: str, values: Mapping[str, _Value]) -> str | None:
        name = self._read_type(word, values)
        return name if name in type_names(self._ctx, documents=True) else None

    def _read_exact_type(self, word: str, _: Mapping[str, _Value]) -> str | None:
        if word in VERBS:
            return None
        return next((name for name in type_names(self._ctx) if name.lower() == word.lower()), None)

    def _read_types(self, word: str, values: Mapping[str, _Value]) -> str | None:
        names = word.split(",")
        kinds = [kind for name in names if (kind := self._read_type(name, values))]
        return f"._type | IN({', '.join(map(json.dumps, kinds))})" if len(kinds) == len(names) > 1 else None

    def _read_new_type(self, word: str, values: Mapping[str, _Value]) -> str | None:
        return word if re.fullmatch(r"[A-Za-z][\w-]*", word) and self._read_type(word, values) is None else None

    def _read_pages(self, word: str, _: Mapping[str, _Value]) -> str | None:
        """The folder of a pattern of documents that no shell has expanded."""
        path = Path(word)
        is_pattern = re.search(r"[*?]", path.name) and path.suffix not in _DATA
        return str(path.parent) if is_pattern and path.parent.is_dir() else None

    def _read_topic(self, word: str, _: Mapping[str, _Value]) -> str | None:
        """What is asked for: no name of a type."""
        return word if word not in type_names(self._ctx) else None

    def _read_range(self, word: str, values: Mapping[str, _Value]) -> str | None:
        versions = re.split(r"\.\.\.?", word)
        are_known = len(versions) == 2 and all(self._read_ref(version or "HEAD", values) for version in versions)
        return word if are_known else None

    def _read_edge_type(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return next((kind.name for kind in base_types(self._ctx) if kind.kind == "edge" and kind.name == word), None)

    def _read_record_json(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word if word[:1] == "{" else None

    def _read_edge_json(self, word: str, values: Mapping[str, _Value]) -> tuple[str, ...] | None:
        """An edge by the names of its ends here; an end that lacks is one that there is, and nothing is written."""
        edge = next(kind for kind in base_types(self._ctx) if kind.name == values["EDGE_TYPE"])
        try:
            fields = json.loads(word)
        except ValueError:
            return None
        if edge.kind != "edge" or not isinstance(fields, dict):
            return None
        record = {_ENDS.get(name.lower(), name): value for name, value in fields.items()}
        missing = [
            (end, kinds) for end, kinds in (("from", edge.from_types), ("to", edge.to_types)) if end not in record
        ]
        record |= {end: find_first_identity(self._ctx, kinds[0]) for end, kinds in missing}
        line = json.dumps({"from": record["from"], "to": record["to"], **record}, ensure_ascii=False)
        return (line, "--dry-run") if missing else (line,)

    def _read_id(self, word: str, values: Mapping[str, _Value]) -> str | None:
        return word if values["AT_TYPE"] in self._find_record_types(word) else None

    def _read_id_first(self, word: str, values: Mapping[str, _Value]) -> str | None:
        return word if self._find_record_types(word) else None

    def _read_missing(self, word: str, values: Mapping[str, _Value]) -> str | None:
        return word if self._read_id(word, values) is None else None

    def _read_record(self, word: str, values: Mapping[str, _Value]) -> tuple[str, str] | None:
        kind, mark, identity = word.partition("/")
        if mark and kind in type_names(self._ctx):
            is_record = kind not in type_names(self._ctx, documents=True)  # of a document this names the file
            return (kind, identity) if is_record and kind in self._find_record_types(identity) else None
        kinds = self._find_record_types(word)
        return (kinds[0], word) if kinds else None

    def _read_version(self, word: str, values: Mapping[str, _Value]) -> tuple[str, ...] | None:
        """`REVISION:TYPE/ID`, as git has it."""
        revision, mark, name = word.partition(":")
        record = self._read_record(name, values) if mark and self._read_ref(revision, values) else None
        return (*record, "--at", revision) if record else None

    def _read_at(self, word: str, values: Mapping[str, _Value]) -> tuple[str, ...] | None:
        identity, mark, revision = word.rpartition("@")
        return (identity, "--at", revision) if mark and self._read_ref(revision, values) else None

    def _read_ref(self, word: str, _: Mapping[str, _Value]) -> str | None:
        root = base_root(self._ctx)
        return word if root is not None and is_revision(root, word) else None

    def _read_verb(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word if word in BY_NAME else None

    def _read_git(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word if word in (*OF_GIT, *_OF_GIT_HERE) else None

    def _read_file(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word if Path(word).is_file() else None

    def _read_new_file(self, word: str, _: Mapping[str, _Value]) -> str | None:
        path = Path(word)
        return word if path.suffix and path.parent.is_dir() and not path.exists() else None

    def _read_data(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word if Path(word).suffix in _DATA and Path(word).is_file() else None

    def _read_path(self, word: str, values: Mapping[str, _Value]) -> str | None:
        return word if Path(word).exists() and self._read_data(word, values) is None else None

    def _read_path_of_type(self, word: str, values: Mapping[str, _Value]) -> str | None:
        return self._read_type(Path(word).stem, values) if "/" in word else None

    def _read_field(self, word: str, values: Mapping[str, _Value]) -> str | None:
        """A field that the records of the type have, where that stands before it."""
        if not _FIELD.fullmatch(word):
            return None
        kind, condition = str(values["AT_TYPE"]), f"{word} IS NOT NULL"
        return word if not kind or find_fitting_type(self._ctx, [kind], condition) == (kind, condition) else None

    def _read_order(self, word: str, values: Mapping[str, _Value]) -> str | None:
        """A field, and how it is ordered."""
        field, _, direction = word.partition(" ")
        fits = direction.lower() in ("", "asc", "desc") and (field == "__updated_at" or self._read_field(field, values))
        return word if fits else None

    def _read_fields(self, word: str, values: Mapping[str, _Value]) -> str | None:
        names = word.split(",")
        return word if len(names) > 1 and all(_FIELD.fullmatch(name) for name in names) else None

    def _read_number(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word if word.isdigit() and word != "0" else None

    def _read_glob(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word if re.search(r"[*?\[]", word) else None

    def _read_shell(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word if word in ("bash", "zsh", "fish") else None

    def _read_word(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word

    def _read_setting(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return f"select(.name | endswith({json.dumps(word)}))"

    def _read_assignment(self, word: str, _: Mapping[str, _Value]) -> str | None:
        """A field and its new value, as a member of an object of jq."""
        name, mark, value = word.partition("=")
        is_text = value[:1] == "'"
        constant = json.dumps(value[1:-1], ensure_ascii=False) if is_text else value.lower()
        is_constant = is_text or re.fullmatch(r"-?\d+(\.\d+)?|true|false|null", constant)
        return f"{json.dumps(name)}: {constant}" if mark and is_constant and name.isidentifier() else None

    def _read_text(self, word: str, _: Mapping[str, _Value]) -> str | None:
        return word

    def _read_condition(self, word: str, _: Mapping[str, _Value]) -> str | None:
        """A comparison, its value in quotes where it is neither that nor a number."""
        if (match := _COMPARISON.fullmatch(word)) is None:
            return None
        name, operator, value = match.groups()
        if not re.fullmatch(r"'.*'|-?\d+(\.\d+)?|true|false", value):
            value = "'" + value.strip("\"'").replace("'", "''") + "'"
        return f"{name}{'=' if operator == '==' else operator}{value}"
