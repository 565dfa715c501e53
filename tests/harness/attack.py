"""ATT&CK as a base: tactics, techniques, groups and what joins them, of the folder `graph/attack` in DUCKKB_EVAL_DATA."""

import json
from pathlib import Path
from typing import Any

from tests.conftest import commit, make_base, run_in


def build(data: Path, root: Path) -> dict[str, int]:
    """Make the base; how many records each type has."""
    nodes = {path.stem.removeprefix("nodes_"): _lines(path) for path in sorted(data.glob("nodes_*.jsonl"))}
    kinds = {one["id"]: name for name, records in nodes.items() for one in records}
    edges = {path.stem.removeprefix("edges_"): _lines(path) for path in sorted(data.glob("edges_*.jsonl"))}
    config: dict[str, Any] = {"global": {"embedding_model": "none"}, "nodes": {}, "edges": {}}
    for name in nodes:
        fields = {"id": {"type": "string"}, "name": {"type": "string"}, "description": {"type": "string"}}
        schema = {"type": "object", "properties": fields, "required": ["id"]}
        config["nodes"][name] = {"identity": "id", "schema": schema, "search": {"full_text": ["name", "description"]}}
    told: dict[str, list[dict[str, Any]]] = dict(nodes)
    for name, records in edges.items():
        known = [one for one in records if one["source"] in kinds and one["target"] in kinds]
        ends = [sorted({kinds[one[side]] for one in known}) for side in ("source", "target")]
        config["edges"][name] = {"from": ends[0], "to": ends[1]}
        once = {(one["source"], one["target"]): one for one in known}
        told[name] = [
            {"from": _end(ids[0], kinds, ends[0]), "to": _end(ids[1], kinds, ends[1]), **_rest(one)}
            for ids, one in once.items()
        ]
    make_base(root, json.dumps(config))
    for name, records in told.items():
        ran = run_in(root, ["put", name], stdin="\n".join(map(json.dumps, records)))
        assert ran.code == 0, ran.err
    commit(root)
    return {name: len(records) for name, records in told.items()}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def _end(id: str, kinds: dict[str, str], types: list[str]) -> Any:
    return id if len(types) == 1 else {"type": kinds[id], "id": id}


def _rest(edge: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in edge.items() if name not in ("source", "target", "from", "to")}
