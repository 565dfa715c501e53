"""The merge rules of each table, stored in `.duckkb/merge.json`: a merge cannot read a configuration that is
itself in conflict, and git's driver has no time to. It needs only the standard library.

The file is written at boot if it differs, with a digest of its source files; if they have changed since, the
rules are computed again. An unknown table is merged by whole records, and its parts keep their order.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from duckkb.errors import Unavailable
from duckkb.open_files import open_without_blocking
from duckkb.truth import state
from duckkb.truth.layout import read_regular
from duckkb.truth.merge.field_merge import MergeRules

if TYPE_CHECKING:
    from duckkb.ontology.model import Ontology

FILE = f"{state.FOLDER}/{state.MERGE}"
_FORMAT = 1
_LONGEST = 4_000_000
_DAMAGED = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)

Key = tuple[str, str]
"""node or edge, and the table or label."""


class RulesByTable(Struct, frozen=True):
    """The rules of all tables."""

    tables: Mapping[Key, MergeRules] = {}

    def get_rules(self, key: Key) -> MergeRules:
        return self.tables.get(key) or MergeRules(granularity="record", name=key[1], known=False)

    def rename_tables(self, former: Mapping[Key, Key]) -> "RulesByTable":
        """Return the rules, and those of renamed tables under their new names; `former` has the old names."""
        new_tables = {
            new: self.tables[old] for new, old in former.items() if old in self.tables and new not in self.tables
        }
        return RulesByTable({**self.tables, **new_tables})


def dump(rules: RulesByTable, configuration: str = "") -> bytes:
    """Return the content of the file; `configuration` is the result of `digest`."""
    tables = {
        "/".join(key): {
            "type": table.name,
            "identity": list(table.identity),
            "merge": dict(table.fields),
            "granularity": table.granularity,
        }
        for key, table in sorted(rules.tables.items())
    }
    content = {"format": _FORMAT, "configuration": configuration, "tables": tables}
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"


def digest(root: Path) -> str:
    """Return a digest of the present files that define merging; each unreadable file changes it."""
    hasher = hashlib.sha256()
    for path in (root / "config.yaml", *sorted((root / "ontology").rglob("*.yaml"))):
        hasher.update(f"{path.relative_to(root).as_posix()}\0".encode("utf-8", "surrogateescape"))
        try:
            with open_without_blocking(path) as file:
                hasher.update(hashlib.sha256(file.read(_LONGEST)).digest())
        except OSError:
            hasher.update(b"?")
    return hasher.hexdigest()


def rules_of(ontology: "Ontology", granularity: Literal["field", "record"]) -> RulesByTable:
    """Return each type's merge rules; `granularity` applies to types without their own."""
    return RulesByTable(
        {
            (kind.kind, kind.table): MergeRules(
                kind.identity_fields, dict(kind.merge_rules), kind.granularity or granularity, kind.name
            )
            for kind in ontology
        }
    )


def remember(root: Path, rules: RulesByTable) -> bool:
    """Write `.duckkb/merge.json` if it differs; return False if it cannot be written."""
    data = dump(rules, digest(root))
    with contextlib.suppress(OSError):
        if read_regular(state.folder_of(root) / state.MERGE)[0] == data:
            return True
    try:
        state.write_atomic(state.ensure(root) / state.MERGE, data, durable=False)
    except (OSError, Unavailable):
        return False
    return True


def load(root: Path) -> RulesByTable:
    """Read the rules from the file; empty if it is absent, damaged, or of another format."""
    try:
        content = _read_file(root)
        if content["format"] != _FORMAT:
            return RulesByTable()
        return RulesByTable({_parse_key(name): _parse_table(entry) for name, entry in content["tables"].items()})
    except _DAMAGED:
        return RulesByTable()


def is_current(root: Path) -> bool:
    """Return whether the file matches the present configuration."""
    try:
        return bool(_read_file(root)["configuration"] == digest(root))
    except _DAMAGED:
        return False


def _read_file(root: Path) -> Any:
    with open_without_blocking(root / FILE) as file:
        return json.loads(file.read(_LONGEST))


def _parse_key(name: str) -> Key:
    kind, _, table = name.partition("/")
    if kind not in ("node", "edge"):
        raise ValueError(name)
    return kind, table


def _parse_table(entry: Mapping[str, Any]) -> MergeRules:
    granularity = entry["granularity"]
    if granularity not in ("field", "record"):
        raise ValueError(granularity)
    identity = tuple(map(str, entry["identity"]))
    return MergeRules(identity, dict(entry["merge"]), granularity, str(entry["type"]))
