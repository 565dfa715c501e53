"""The types that a caller sees, as pages need them: what `types` answers, by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from duckkb.serving.web.visit import Visit


class Kind(Struct, frozen=True):
    """One type: its name, "node" or "edge", the fields of its identity, those by which it says that people know a record (`display`),
    those that are searched, and how many records it has; of an edge type the types that its `sources` and `targets` may have.
    `has_vectors`: its records can be near others."""

    name: str
    kind: str
    identity: Sequence[str]
    display: Sequence[str]
    texts: Sequence[str]
    records: int
    has_vectors: bool
    sources: Sequence[str] = ()
    targets: Sequence[str] = ()


async def kinds(visit: Visit) -> Mapping[str, Kind]:
    """By name, in the order of the ontology. Raises as `Visit.ask`."""
    lines = (await visit.ask("types"))["types"]
    return {line["name"]: _build_kind(line) for line in lines}


def _build_kind(line: Mapping[str, Any]) -> Kind:
    texts = [*dict.fromkeys([*line["full_text"], *line["vectors"]])]
    ends = line.get("from", ()), line.get("to", ())
    head = line["name"], line["kind"], line["identity"], line["display"]
    return Kind(*head, texts, line["records"], bool(line["vectors"]), *ends)
