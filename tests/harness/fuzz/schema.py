"""Fuzzing of types over records that are there already: a changed ontology must not make a base fall over.

A record that breaks the current schema is loaded, searched and reported; only a write of it must satisfy the schema.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import yaml

import duckkb
from duckkb.app import KnowledgeBase
from duckkb.ontology.yaml_source import read_yaml
from duckkb.operations.maintenance import CheckReport
from duckkb.types.errors import DuckkbError, OntologyError
from tests.conftest import NOTES
from tests.harness import oracle
from tests.harness.fuzz.cli import make_notes
from tests.harness.fuzz.mutate import Mutator
from tests.harness.fuzz.ontology import TOKENS

FIELDS = (
    {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": ["string", "null"]}, {},
    {"type": ["string", "integer"]}, {"type": "array"}, {"type": "array", "items": {"type": "string"}}, {"type": "object"},
    {"type": "array", "items": {"type": "integer"}}, {"type": "string", "format": "date"}, {"type": "string", "format": "date-time"},
    {"enum": ["draft", 1, None]}, {"const": "x"}, {"type": "string", "pattern": "^x"}, {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": "string", "maxLength": 2}, {"not": {"type": "string"}},
    {"type": ["array", "null"], "items": {"type": ["string", "null"]}}, {"$ref": "#/$defs/a"}, {"type": "integer", "maximum": 3},
)  # fmt: skip
NAMES = (
    "id",
    "title",
    "text",
    "status",
    "size",
    "tags",
    "country",
    "number",
    "name",
    "why",
    "more",
    "caf\u00e9",
    "x y",
    "select",
    "rowid",
)


class SchemaTarget:
    """The base of notes under configurations that grow from its own."""

    name = "types over stored records"
    modules = (
        "duckkb/sql/columns.py",
        "duckkb/sql/runtime_tables.py",
        # What a base without a model and without git goes through.
        *(
            f"duckkb/engine/{name}.py"
            for name in ("base", "boot", "draft", "graph", "guard", "observed", "query", "write")
        ),
        "duckkb/review/findings.py",
    )

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a" / "b" / "c" / "d" / "kb"
        make_notes(self.root)
        odd = {
            "id": "n90",
            "size": "five",
            "tags": "none",
            "title": ["a"],
            "text": 5,
            "status": {"a": [None]},
            "more": [1.5],
        }
        part = next((self.root / "data/nodes/note").rglob("*.jsonl"))
        part.write_bytes(part.read_bytes() + json.dumps(odd).encode() + b"\n")
        self._data = oracle.tree(self.root)
        self.used = 0

    def inputs(self, chance: Random) -> Iterator[bytes]:
        mutator = Mutator(chance, TOKENS)
        while True:
            made = yaml.safe_dump(_changed(chance), allow_unicode=True, sort_keys=False).encode()
            yield mutator.mutate(made) if chance.random() < 0.2 else made

    def check(self, value: bytes) -> bool:
        (self.root / "config.yaml").write_bytes(value)
        document = read_yaml(value, "config.yaml")
        try:
            with duckkb.open(self.root) as kb:
                self._use(kb)
        except OntologyError:
            pass
        except DuckkbError as error:
            assert error.exit_code == 1 and str(error), error
        assert oracle.tree(self.root) == self._data
        report = _report(self.root)
        assert report is None or all(one.message for one in report.findings)
        return not document.findings

    def _use(self, kb: KnowledgeBase) -> None:
        """Everything that reads, of every type; what duckkb refuses on purpose is an answer too."""
        self.used += 1
        assert kb.status() is not None
        kb.ddl()
        for kind in kb.types():
            name = kind["name"]
            records = list(kb.export(name))
            assert kb.list(name).total == len(records)
            for record in records[:2]:
                json.dumps(record, allow_nan=False)
            for ask in (
                {"query": "ranking 1", "mode": "match"},
                {"where": "size > 3"},
                {"where": "title = 'ranking 2'"},
                {"query": "hash", "where": "tags = 'a'"},
                {"where": "title = 'RANKING 2' OR status = 'Draft'"},
                {"where": "titel = 'ranking 2'"},
                {"query": "n2"},
            ):
                with suppress(DuckkbError):
                    kb.find(name, **ask)
                with suppress(DuckkbError):
                    kb.run("count", {"type": name, "where": ask.get("where")})
            identities = [record["id"] for record in records[:2] if "id" in record]  # people and edges have none
            if identities:
                with suppress(DuckkbError):
                    kb.delete(name, *identities, dry_run=True, cascade=True, allow_shrink=True)
            with suppress(DuckkbError):
                kb.put(name, records[:3], dry_run=True)
        for statement in ("SELECT count(*) FROM note", "SELECT * FROM person", "SELECT * FROM cites"):
            with suppress(DuckkbError):
                kb.sql(statement)
        with suppress(DuckkbError):
            kb.neighbors("Note", "n1", depth=3)
        with suppress(DuckkbError):
            kb.rename("Note", "n1", "n99", dry_run=True)
        with suppress(DuckkbError):
            kb.put("Note", {"id": "n1", "size": 1}, merge=True, dry_run=True)


def _changed(chance: Random) -> dict[str, Any]:
    """The configuration of the notes after a few steps that an owner of a base could take."""
    made: dict[str, Any] = yaml.safe_load(NOTES)
    types = [*made["nodes"].values(), *made["edges"].values()]
    for _ in range(chance.randint(1, 5)):
        kind = chance.choice(types)
        properties = kind.setdefault("schema", {"type": "object"}).setdefault("properties", {})
        kind["schema"]["$defs"] = {"a": {"type": "string"}}
        match chance.randrange(8):
            case 0 if "identity" in kind:
                kind["identity"] = chance.choice([*kind["identity"], chance.sample(list(properties), 2)])
            case 1:
                properties.pop(chance.choice(list(properties) or [""]), None)
            case 2:
                texts = [name for name in properties if chance.random() < 0.5]
                kind["search"] = {
                    "full_text": [{"field": name, "weight": 2} if len(name) > 4 else name for name in texts]
                }
            case 3:
                kind["schema"] |= {"additionalProperties": False, "required": chance.sample(NAMES[:5], 2)}
            case 4 if "from" in kind:
                kind |= {
                    "to": chance.choice(["Note", "Person", ["Person", "Note"]]),
                    "cardinality": chance.choice(["1:1", "N:1"]),
                }
            case 5:
                made["limits"] = {
                    "max_record_bytes": chance.choice([1_024, 5_000]),
                    "max_depth": chance.choice([2, 3, 128]),
                }
            case _:
                properties[chance.choice(NAMES)] = chance.choice(FIELDS)
    return made


def _report(root: Path) -> CheckReport | None:
    with suppress(OntologyError):
        return duckkb.check(root)
    return None
