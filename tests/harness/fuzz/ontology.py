"""Fuzzing of the YAML reader and of everything that is read from it: settings, types, schemas, policies, questions."""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import yaml

from duckkb import config
from duckkb.config.config_files import normalize_config
from duckkb.ontology.validation import Validator
from duckkb.ontology.yaml_source import Document, read_yaml
from duckkb.sql.columns import ddl
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding, OntologyError
from duckkb.types.settings import Environment
from tests.harness.fuzz.mutate import ODD_CHARACTERS, Mutator

TOKENS = tuple(
    token.encode()
    for token in (
        *("nodes", "edges", "policies", "questions", "global", "table", "label", "identity", "schema", "search"),
        *("full_text", "vectors", "from", "to", "cardinality", "type", "properties", "required", "items", "enum"),
        *("string", "integer", "number", "array", "object", "boolean", "null", "true", "false", "none", "1:N", "N:1"),
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "$ref", "$defs", "'#/$defs/a'", "'#/$defs/b'", "const"),
        *(
            "additionalProperties",
            "patternProperties",
            "pattern",
            "format",
            "x-merge",
            "x-review",
            "set",
            "text",
            "max",
            "latest",
            "ours",
        ),
        *("Note", "Person", "id", "title", "chunk_size", "weight", "language", "policy", "merge", "granularity"),
        *(": ", "- ", "\n", "\n  ", "\n    ", "\t", "#", "{}", "[]", "{", "}", "[", "]", ",", "'", '"', "|", ">", "? "),
        *(
            "&a ",
            "*a",
            "!!str ",
            "!!python/object:os.system ",
            "---\n",
            "...\n",
            "%YAML 1.1\n",
            "~",
            "yes",
            "no",
            "010",
        ),
        *("12:30:45", "2026-01-01", "0x10", "1e3", "1.5", ".inf", "-.inf", ".nan", "0o17", "=", "<<: ", '"\\x41"'),
        *('"\\ud800"', '"\\0"', "sk-1234567890abcdef1234", "con", "all", "search_index", "__id", "select", "(a+)+$"),
    )
)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_SCALARS = ("string", "integer", "number", "boolean")
_FIELDS = (
    "id",
    "title",
    "text",
    "size",
    "tags",
    "status",
    "caf\u00e9",
    "\u6807\u9898",
    "a-b",
    "select",
    "x y",
    "from_it",
)


class _Core12(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Scalars by the core schema of YAML 1.2, chapter 10.3.2: what PyYAML knows of 1.1 is left out."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _tag, _form, _make in (
    ("null", r"null|Null|NULL|~|", lambda text: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", lambda text: int(text, 0 if text[1:2] in "ox" and text[1:] else 10)),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
     lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))),
):  # fmt: skip
    _Core12.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_form})\Z"), None)
    _Core12.add_constructor(f"tag:yaml.org,2002:{_tag}", lambda loader, node, make=_make: make(node.value))


class OntologyTarget:
    """config.yaml files in one folder, which is written anew for each; what loads must also work. `read` reads YAML."""

    name = "ontology"
    modules = ("duckkb/ontology/*.py", "duckkb/config/config_files.py", "duckkb/config/setting_keys.py")

    def __init__(self, root: Path, read: Callable[[bytes, str], Document] = read_yaml) -> None:
        self._read = read
        self.root = root
        self._env = Environment(cache_home=root / "cache", state_home=root / "state")
        self.accepted = 0

    def inputs(self, chance: Random) -> Iterator[bytes]:
        mutator = Mutator(chance, TOKENS)
        pool = [valid_config(chance) for _ in range(40)]
        while True:
            pool[chance.randrange(len(pool))] = valid_config(chance)
            for _ in range(20):
                yield mutator.mutate(chance.choice(pool), chance.choice(pool))

    def check(self, value: bytes) -> bool:
        document = self._read(value, "config.yaml")
        _check_findings(list(document.findings), value)
        if document.findings or document.broken:
            return False
        _check_values(document.value, value)
        (self.root / "config.yaml").write_bytes(value)
        try:
            loaded = config.load(self.root, self._env)
        except OntologyError as error:
            assert error.exit_code == 2 and error.findings, error
            assert len({str(one) for one in error.findings}) == len(error.findings), error
            _check_findings(list(error.findings), value)
            return True
        self.accepted += 1
        check_usable(loaded)
        return True


def _check_findings(findings: list[Finding], data: bytes) -> None:
    """Every finding has a code, a place in the file, and one line of words."""
    lines = data.count(b"\n") + 1
    for one in findings:
        assert one.code in CODES and one.path == "config.yaml" and 0 <= one.line <= lines, one
        assert one.message and one.message.isprintable() and len(one.message) < 1_000, one
        assert "\n" not in one.remedy and len(one.remedy) < 2_000, one


def _check_values(value: Any, data: bytes) -> None:
    """What is accepted means the same to PyYAML, which reads YAML 1.1, and by the rules of 1.2, type by type; now and then
    to the parser that shares no C with ours."""
    loader = yaml.SafeLoader if len(data) % 8 == 0 else getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for one in (loader, _Core12):
        other = yaml.load(data.decode("utf-8-sig"), one)
        assert repr(value) == repr({} if other is None else other), (value, other)


def check_usable(loaded: config.Loaded) -> None:
    """A configuration that loads can be shown, makes tables, and has validators that answer."""
    json.dumps(normalize_config(loaded), allow_nan=False)
    for kind in loaded.ontology:
        assert ddl(kind), kind
        validator = Validator(kind, loaded.ontology)
        for fields in sample_records(kind.identity_fields, kind.properties):
            findings = validator.findings(fields)
            assert validator.is_valid(fields) == (not findings), (fields, findings)
            assert all(one.message.isprintable() for one in findings), findings


def sample_records(identity: tuple[str, ...], properties: Any) -> list[dict[str, Any]]:
    return [
        dict.fromkeys(identity, "a"),
        dict.fromkeys((*identity, *properties), 1),
        {name: ["a", None, {"b": 2.5}] for name in properties}
        | {name: {"type": "Note", "id": "n"} for name in identity},
        {"nobody": None, "\u2028": math.pi},
    ]


def valid_config(chance: Random) -> bytes:
    """A configuration that loads, in one of several styles."""
    nodes = {
        name: _node(chance, number)
        for number, name in enumerate(chance.sample(("Note", "Person", "Ort"), chance.randint(1, 3)))
    }
    made: dict[str, Any] = {"global": {"embedding_model": "none", **_settings(chance)}, "nodes": nodes}
    if chance.random() < 0.6:
        ends = list(nodes)
        made["edges"] = {
            "cites": {"from": ends[0], "to": chance.choice(ends)},
            "about": {"label": "about_it", "from": ends, "to": chance.choice([ends, ends[0]]), "cardinality": chance.choice(["1:N", "N:N"]), "schema": {"properties": {"why": {"type": "string"}}}},
        }  # fmt: skip
    if chance.random() < 0.4:
        made["policies"] = {
            "plain": {
                "intents": {"allowed": ["match", "where"], "default": "match"},
                "fusion": {"k": chance.randint(1, 100)},
            }
        }
        next(iter(nodes.values()))["policy"] = "plain"
    if chance.random() < 0.3:
        made["questions"] = [{"question": "what is it?", "type": next(iter(nodes)), "mode": "match", "expected": ["a"]}]
    if chance.random() < 0.3:
        made |= {
            "limits": {"max_depth": chance.randint(2, 128)},
            "layout": {"part": "fixed"},
            "include": "ontology/**/*.yaml",
        }
    return _written(chance, made).encode()


def _settings(chance: Random) -> dict[str, Any]:
    every = {"chunk_size": chance.randint(100, 2_000), "language": chance.choice(["none", "german"]), "tokenizer": "plain",
             "fusion": {"method": "rrf", "k": 60}, "fold_chinese": "simplified", "embedding": {"timeout_s": 2.5}}  # fmt: skip
    return {name: every[name] for name in chance.sample(list(every), chance.randrange(4))}


def _node(chance: Random, number: int) -> dict[str, Any]:
    names = chance.sample(_FIELDS[1:], chance.randint(1, 5))
    properties = {"id": {"type": chance.choice(["string", "integer"])}} | {name: _schema(chance, 0) for name in names}
    texts = [name for name in names if properties[name].get("type") == "string"]
    node: dict[str, Any] = {
        "identity": chance.choice(["id", ["id"]]),
        "schema": {"type": "object", "properties": properties},
    }
    if chance.random() < 0.5:
        node["table"] = f"table_{number}"
    if chance.random() < 0.3:
        node["schema"] |= {"required": ["id"], "additionalProperties": chance.choice([True, False])}
    if chance.random() < 0.3:
        node["schema"]["$defs"] = {"a": _schema(chance, 1), "b": {"$ref": "#/$defs/a"}}
        properties["linked"] = {"$ref": "#/$defs/b"}
    if texts:
        node["search"] = {"full_text": [chance.choice([texts[0], {"field": texts[0], "weight": 2}]), *texts[1:]]}
    return node


def _schema(chance: Random, depth: int) -> dict[str, Any]:
    match chance.randrange(10 if depth < 2 else 6):
        case 0:
            return {"enum": ["draft", "final", chance.choice(ODD_CHARACTERS[13:22])]}
        case 1:
            return {"type": "integer", "minimum": chance.randint(-5, 5), "maximum": 100}
        case 2:
            return {"type": "string", "pattern": chance.choice(["^[a-z]+$", "a|b", "\\d{4}"]), "maxLength": 100}
        case 3:
            return {"type": ["string", "null"], "format": chance.choice(["date", "uri", "email"])}
        case 6:
            return {"type": "array", "items": {"type": "string"}, "x-merge": "set"} if not depth else {"type": "array"}
        case 7:
            return {"anyOf": [_schema(chance, depth + 1), {"type": "null"}]}
        case 8:
            return {"type": "object", "properties": {"a": _schema(chance, depth + 1)}, "required": ["a"]}
        case 9:
            return {"allOf": [_schema(chance, depth + 1)], "description": "what it is"}
        case _:
            return {"type": chance.choice(_SCALARS)}


def _written(chance: Random, value: Any) -> str:
    """As people write it: block style, flow style, or the YAML that JSON is."""
    match chance.randrange(4):
        case 0:
            return json.dumps(value, ensure_ascii=False, indent=chance.choice([None, 2]))
        case 1:
            return yaml.dump(
                value, Dumper=_DUMPER, allow_unicode=True, sort_keys=False, default_flow_style=None, width=10_000
            )
        case _:
            return "# types\n" + yaml.dump(value, Dumper=_DUMPER, allow_unicode=True, sort_keys=False)
