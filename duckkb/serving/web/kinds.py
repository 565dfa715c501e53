"""The types that a caller sees, as pages need them: the answer of `types`, by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from duckkb.serving.web.visit import Visit


class Kind(Struct, frozen=True):
    """A type as pages need it.

    It has its name, "node" or "edge", the fields of its identity, those that represent a record (`display`),
    those that are searched, and the number of its records; for an edge type the node types of its `sources` and
    `targets`. `has_vectors`: its records can be compared by meaning.
    """

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
    """Return the types by name, in the order of the ontology. Raises as `Visit.ask`."""
    lines = (await visit.ask("types"))["types"]
    return {line["name"]: _build_kind(line) for line in lines}


def _build_kind(line: Mapping[str, Any]) -> Kind:
    texts = [*dict.fromkeys([*line["full_text"], *line["vectors"]])]
    ends = line.get("from", ()), line.get("to", ())
    head = line["name"], line["kind"], line["identity"], line["display"]
    return Kind(*head, texts, line["records"], bool(line["vectors"]), *ends)
