"""What config.yaml may not say: each text with the code that its findings have among them."""

import json

from tests.harness.bad_inputs.ground import KEY

_LEVELS = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9))


def note(field: str, more: str = "") -> str:
    """A type with one field `text`, whose schema is on line 9."""
    head = "nodes:\n  Note:\n    table: note\n    identity: id\n    schema:\n      type: object\n      properties:\n"
    return f"{head}        id: {{type: string}}\n        text: {field}\n{more}"


def named(name: str = "Note", table: str = "note", field: str = "text") -> str:
    """A whole configuration of one type, as JSON."""
    schema = {"type": "object", "properties": {"id": {"type": "string"}, field: {"type": "string"}}}
    kind = {"table": table, "identity": "id", "schema": schema, "search": {"full_text": [field]}}
    return json.dumps({"nodes": {name: kind}})


def _settings(inside: str) -> str:
    return f"global: {{{inside}}}\n"


def _service(inside: str) -> str:
    return f"global: {{embedding_model: m, embedding: {{{inside}}}}}\n"


_YAML: dict[str, str | bytes] = {
    "a key that is no": "no: 1\n",
    "010": _settings("chunk_size: 010"),
    "0x320": _settings("chunk_size: 0x320"),
    "1_000": _settings("chunk_size: 1_000"),
    "12:30": _settings("chunk_size: 12:30"),
    "1e9": _settings("chunk_size: 1e9"),
    "yes for a flag": _service("symmetric: yes, base_url: 'http://x'"),
    "a date": _settings("language: 2024-02-30"),
    "a tab": "global:\n\tchunk_size: 800\n",
    "two documents": "global: {}\n---\nglobal: {}\n",
    "a tag": "global: !!python/object:os.system {}\n",
    "a tag that would run": "global: !!python/object/apply:os.system ['touch ran']\n",
    "a tag on a scalar": _settings("chunk_size: !!int '800'"),
    "a binary tag": _settings("language: !!binary aGVsbG8="),
    "an anchor": "global: &a {}\n",
    "an alias": "global: &a {}\nedges: *a\n",
    "a merge key": "nodes:\n  <<: {A: {}}\n",
    "an alias bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n" + _LEVELS,
    "an alias to itself": "a: &a [*a]\n",
    "a key twice": _settings("chunk_size: 800") * 2,
    "a key twice inside": _settings("chunk_size: 800, chunk_size: 900"),
    "a type twice": "nodes:\n  A: {identity: id}\n  A: {identity: id}\n",
    "a key that is a number": "1: 2\n",
    "a key that is null": "~: 2\n",
    "a key that is a list": "? [a]\n: 1\n",
    "a list": "- a\n",
    "a text": "hello\n",
    "40 levels": f"a: {'[' * 40}{']' * 40}\n",
    "100,000 open lists": "a: " + "[" * 100_000 + "\n",
    "50,000 open mappings": "a: " + "{a: " * 50_000 + "\n",
    "1 MiB": "# " + "x" * (1 << 20) + "\n",
    "NUL": "a: \0\n",
    "a control": "a: \x1b[31m\n",
    "next line": "a: x\x85y\n",
    "half a character": 'a: "\\ud800"\n',
    "latin-1": b"a: \xe9\n",
    "UTF-16": "global: {}\n".encode("utf-16"),
    "a ZIP": b"PK\x03\x04\xff\xfe\0",
    "markers": "<<<<<<< HEAD\nglobal: {}\n=======\nedges: {}\n>>>>>>> theirs\n",
    "not closed": "global: {\n",
    "chunk_size of 5,000 digits": _settings("chunk_size: " + "9" * 5000),
    "a key in a file that does not parse": _service(f"api_key: {KEY}")[:-3] + "\n",
    "a key for an anchor": f"a: &{KEY} 1\n",
    "a key for an alias": f"a: *{KEY}\n",
    "a key for a tag": f"a: !{KEY} 1\n",
    "a key behind a tab": f"global:\n\tapi_key: {KEY}\n",
    "a key for a directive": f"%{KEY}\n",
}
_SETTINGS: dict[str, str] = {
    "20,000 unknown keys": "".join(f"k{n}: 1\n" for n in range(20_000)),
    "an unknown key": "globl: {}\n",
    "an unknown key inside": _settings("embeding: {}"),
    "a command": "hooks: {post_write: 'touch ran'}\n",
    "an editor": _settings("editor: vim"),
    "files elsewhere": "include: /etc/*.yaml\n",
    "files above": "include: ['../**/*.yaml']\n",
    "chunk_size 0": _settings("chunk_size: 0"),
    "chunk_size -5": _settings("chunk_size: -5"),
    "chunk_size 1000000000": _settings("chunk_size: 1000000000"),
    "chunk_size '800'": _settings("chunk_size: '800'"),
    "chunk_size 800.0": _settings("chunk_size: 800.0"),
    "chunk_size true": _settings("chunk_size: true"),
    "chunk_size of nothing": _settings("chunk_size: "),
    "max_depth 1000": "limits: {max_depth: 1000}\n",
    "max_record_bytes 1": "limits: {max_record_bytes: 1}\n",
    "embed_wait_s -1": "search: {embed_wait_s: -1}\n",
    "an unknown language": _settings("language: klingon"),
    "a model without an address": _settings("embedding_model: m"),
    "a file for an address": _service("base_url: 'file:///etc/passwd'"),
    "a command for an address": _service("base_url: 'ext::sh -c touch% ran'"),
    "an address with an escape": _service('base_url: "http://x/\\u001b[31m"'),
    "retries without end": _service("base_url: 'http://x', max_retries: 1000000000"),
    "a time-out of nothing": _service("base_url: 'http://x', timeout_s: 0"),
    "a key": _service(f"api_key: {KEY}"),
    "a key for its variable": _service(f"base_url: 'http://x', api_key_env: {KEY}"),
    "a key in the address": _service(f"base_url: 'http://u:{KEY}@x/'"),
    "a key in a query": _service(f"base_url: 'http://x/?k={KEY}'"),
    "a key for a model": _settings(f"embedding_model: {KEY}"),
    "a key for a key": f"{KEY}: 1\n",
    "a key for a type": f"nodes: {{{KEY}: {{}}}}\n",
    "a key twice for a key": f"{KEY}: 1\n{KEY}: 2\n",
    "a key in a block": f"global: |\n  {KEY}\n",
    "a key in a list": f"questions: [{KEY}]\n",
    "a password of digits": _service("password: 12345678"),
}
_DOUBLING = "".join(
    f"        a{n}: {{anyOf: [{{$ref: '#/$defs/a{n + 1}'}}, {{$ref: '#/$defs/a{n + 1}'}}]}}\n" for n in range(25)
)
_ONTOLOGY: dict[str, str] = {
    "an identity that is not in the schema": note("{type: string}").replace("identity: id", "identity: idd"),
    "an identity of any kind": note("{}").replace("identity: id", "identity: text"),
    "a reference to a host": note("{$ref: 'http://127.0.0.1:9/x.json'}"),
    "a reference to a file": note("{$ref: 'file:///etc/passwd'}"),
    "a reference to itself": note("{$ref: '#'}"),
    "a reference in a circle": note("{$ref: '#/$defs/a'}", "      $defs: {a: {$ref: '#/$defs/a'}}\n"),
    "a reference that unfolds": note(
        "{$ref: '#/$defs/a0'}", f"      $defs:\n{_DOUBLING}        a25: {{type: string}}\n"
    ),
    "an id of a host": note("{$id: 'http://127.0.0.1:9/x'}"),
    "a dialect of a host": note("{$schema: 'http://127.0.0.1:9/x'}"),
    "a reference at run time": note("{$dynamicRef: '#a'}"),
    "half a pattern": note("{type: string, pattern: '('}"),
    "a pattern that looks ahead": note("{type: string, pattern: '(?=a)(a+)+$'}"),
    "a pattern that refers back": note("{type: string, pattern: '^(a|aa)+\\1$'}"),
    "a pattern that is huge": note("{type: string, pattern: '(a{1000}){1000}'}"),
    "a wrong keyword": note("{type: strin}"),
    "an unknown end": "edges: {e: {from: Nobody, to: Nobody}}\n",
    "a wrong cardinality": note("{}") + "edges: {e: {from: Note, to: Note, cardinality: '1:9'}}\n",
    "two types with one table": note("{}") + note("{}")[7:].replace("Note:", "Other:"),
    "an unknown policy": note("{}") + "    policy: none_such\n",
    "questions that are none": note("{}") + "questions: {a: b}\n",
    "a question of an unknown type": note("{}") + "questions: [{question: x, type: Nte, expected: [a]}]\n",
    "a question without an answer": note("{}") + "questions: [{question: x, type: Note, expected: []}]\n",
}
TEXTS: dict[str, tuple[str | bytes, str]] = {
    **{name: (text, "E_YAML") for name, text in _YAML.items()},
    **{name: (text, "E_CONFIG") for name, text in _SETTINGS.items()},
    **{name: (text, "E_ONTOLOGY") for name, text in _ONTOLOGY.items()},
}

_TABLES = ["con", "nul", "lpt1", "../x", ".git", "-rf", "A", "a b", "note;", "", "search_index", "search_cache", "x" * 64, "ａ",
           "_a", "1a", "all", "a\0", "a/b", "COM1"]  # fmt: skip
_NAMES = ["__proto__", "all", "ALL", "../x", ".git", "-rf", "a-b", "x" * 65, "e\u0301", "", " ", "a.b", "1"]
_FIELDS = ["__id", "_x", "__created_at", "_type", "ID", "", "a\nb", "id\0", "a\u202eb", "__proto__"]
REFUSED_NAMES = {
    **{f"table {name[:20]!r}": named(table=name) for name in _TABLES},
    **{f"type {name[:20]!r}": named(name=name) for name in _NAMES},
    **{f"field {name[:20]!r}": named(field=name) for name in _FIELDS},
}
NAMES_OF_DUCKDB = ["main", "information_schema", "pg_catalog", "sqlite_master", "temp", "duckdb_tables"]
ODD_NAMES = [*NAMES_OF_DUCKDB, "select", "order", "constructor"]
ODD_FIELDS = [
    "a.b",
    'a"b',
    "a b",
    "a;b",
    "select",
    "rowid",
    "名",
    "$ref",
    "x" * 500,
    "from",
    "fts_content",
    "main",
    "'",
]
PATTERNS = [
    "(a+)+$",
    "^(a+)+$",
    "^(a|a)*$",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(x+x+)+y",
    "^(a?){25}a{25}$",
    "(.*a){20}",
    "^\\w{1,1000}$",
]
