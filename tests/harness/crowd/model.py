"""What a sequence of writes must leave, in plain Python: the yardstick of campaigns that kill, interrupt and interleave."""

import copy
import json
from pathlib import Path
from typing import Any

from tests.harness import oracle

Op = dict[str, Any]
Key = str
"""An identity: the JSON of its scalar, or of its list."""

IDENTITY = {"note": ["id"], "person": ["country", "number"], "cites": ["from", "to"], "wrote": ["from", "to"]}
TABLES = {"Note": "note", "Person": "person", "cites": "cites", "wrote": "wrote"}
_ENDS = {"cites": ("note", "note"), "wrote": ("person", "note")}


class Model:
    """Records by table and identity: their fields, and the `__id` once it has been seen; `shuffled`: some part may be out of
    order."""

    def __init__(self) -> None:
        self.fields: dict[str, dict[Key, dict[str, Any]]] = {table: {} for table in IDENTITY}
        self.ids: dict[tuple[str, Key], int] = {}
        self.shuffled = False

    def copy(self) -> "Model":
        return copy.deepcopy(self)

    def apply(self, op: Op) -> None:
        """One write. `fmt`, `index` and `shuffle` change no record."""
        match op["op"]:
            case "put" | "import":
                table = TABLES[op["type"]]
                for record in op["records"]:
                    self.fields[table][key_of(table, record)] = record
            case "delete":
                for identity in op["ids"]:
                    self._delete(TABLES[op["type"]], json.dumps(identity))
            case "rename":
                self._rename(TABLES[op["type"]], op["old"], op["new"])
            case "shuffle" | "fmt":
                self.shuffled = op["op"] == "shuffle"

    def _delete(self, table: str, key: Key) -> None:
        del self.fields[table][key]
        self.ids.pop((table, key), None)
        for edge, ends in _ENDS.items():
            for edge_key, fields in list(self.fields[edge].items()):
                if any(
                    end == table and json.dumps(fields[side]) == key
                    for side, end in zip(("from", "to"), ends, strict=True)
                ):
                    self._delete(edge, edge_key)

    def _rename(self, table: str, old: Any, new: Any) -> None:
        self._move(table, json.dumps(old), self.fields[table][json.dumps(old)] | {"id": new})
        for edge, ends in _ENDS.items():
            for edge_key, fields in list(self.fields[edge].items()):
                sides = [s for s, end in zip(("from", "to"), ends, strict=True) if end == table and fields[s] == old]
                if sides:
                    self._move(edge, edge_key, fields | dict.fromkeys(sides, new))

    def _move(self, table: str, key: Key, fields: dict[str, Any]) -> None:
        del self.fields[table][key]
        moved = key_of(table, fields)
        self.fields[table][moved] = fields
        if (table, key) in self.ids:
            self.ids[table, moved] = self.ids.pop((table, key))

    def adopt(self, root: Path) -> None:
        """Remember the ids that the files give."""
        self.ids = {(table, key_of(table, record)): number for (table, number), record in oracle.records(root).items()}

    def differs(self, root: Path) -> str:
        """What of the files is not as it should be; empty where all is."""
        found: dict[str, dict[Key, dict[str, Any]]] = {table: {} for table in IDENTITY}
        for (table, number), record in oracle.records(root).items():
            fields = {name: value for name, value in record.items() if not name.startswith("__")}
            key = key_of(table, fields)
            if key in found[table]:
                return f"{table} {key} stands twice"
            found[table][key] = fields
            if self.ids.get((table, key), number) != number:
                return f"{table} {key} changed its __id"
        for table, wanted in self.fields.items():
            if found[table] != wanted:
                odd = sorted(found[table].keys() ^ wanted.keys())
                odd += [k for k in wanted if k in found[table] and wanted[k] != found[table][k]]
                return f"{table}: {odd[:5]} of {len(wanted)} wanted, {len(found[table])} found"
        return ""


def key_of(table: str, fields: dict[str, Any]) -> Key:
    names = IDENTITY[table]
    return json.dumps(fields[names[0]] if len(names) == 1 else [fields[name] for name in names])
