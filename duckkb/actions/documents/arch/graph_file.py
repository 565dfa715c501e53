"""Reading of a graph of code in node-link JSON (networkx, d3, graphify) into records, or all its problems.

Pure: bytes in, values out.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from duckkb.errors import Finding, InvalidRecord
from duckkb.ontology.rules import show_value
from duckkb.queries import Notice
from duckkb.records import FROM, TO
from duckkb.truth.files.ids import scalar_problem
from duckkb.truth.files.strict import MOST_FINDINGS, Limits, parse_whole

LARGEST = 128 * 1024 * 1024  # bytes
_LIMITS = Limits(LARGEST)
_LONGEST = 1_000  # characters of a field
_TEXTS = {
    "kind": ("kind", "type", "file_type"),
    "file": ("file", "source_file"),
    "location": ("location", "source_location", "line"),
}
_NODE = {"label": ("label", "name"), **_TEXTS}
_EDGE = {"relation": ("relation", "type", "label"), "file": _TEXTS["file"], "location": _TEXTS["location"]}
"""By field of a record, the attributes that may give it; the first present one does."""
_CONFIDENCE = ("confidence_score", "confidence")
_WORDS = {"EXTRACTED": 1.0, "INFERRED": 0.5, "AMBIGUOUS": 0.2}
"""The words with which graphify grades edges, as its own numbers."""
_UNNAMED = "related"
_OF_GRAPH = {"nodes", "links", "edges", "directed", "multigraph", "graph", "built_at_commit"}
_OF_NODE = {"id", *(name for names in _NODE.values() for name in names)}
_OF_EDGE = {"source", "target", "key", *_CONFIDENCE, *(name for names in _EDGE.values() for name in names)}
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MOST_NAMED = 8


class CodeGraph(Struct, frozen=True):
    """A graph: nodes and edges as fields of records, and the `commit` that the tool recorded (None: none)."""

    nodes: Sequence[Mapping[str, Any]]
    edges: Sequence[Mapping[str, Any]]
    commit: str | None
    notices: tuple[Notice, ...]


def read_graph(data: bytes, path: str, home: str) -> CodeGraph:
    """Read a graph from a file at `path`; files of the code are named relative to its folder `home`.

    Raises `errors.InvalidRecord` with its first hundred problems by JSON pointer.
    """
    too_long = Finding("E_TOO_LARGE", f"a graph has at most {LARGEST:,} bytes")
    value, wrong = parse_whole(data, _LIMITS) if len(data) <= LARGEST else (None, [too_long])
    reading = _GraphReading(home, wrong)
    if isinstance(value, dict):
        reading.read(value)
    elif not wrong:
        reading.problem("", f"is {show_value(value)}, no graph: an object with `nodes` and `links`")
    if reading.wrong:
        findings = [
            Finding(finding.code, finding.message, path, field=finding.field)
            for finding in reading.wrong[:MOST_FINDINGS]
        ]
        count = f"{len(findings)} problem{'s' if len(findings) > 1 else ''}"
        problem_count = f"more than {count}" if len(reading.wrong) > MOST_FINDINGS else count
        raise InvalidRecord(
            f"{problem_count} in {path}; nothing was written",
            suggestion="correct the program that writes it",
            findings=findings,
            exit_code=1,
        )
    commit = value.get("built_at_commit") if isinstance(value, dict) else None
    commit_id = commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else None
    return CodeGraph([*reading.nodes.values()], [*reading.edges.values()], commit_id, tuple(reading.notices()))


class _GraphReading(Struct):
    """The state of reading: nodes by identity, places of ids, problems, omissions, and the number of merged edges."""

    home: str
    wrong: list[Finding]
    nodes: dict[str, dict[str, Any]] = {}
    edges: dict[tuple[str, str, str], dict[str, Any]] = {}
    places: dict[str, str] = {}
    left_out: dict[str, None] = {}
    joined: int = 0

    def problem(self, place: str, message: str, code: str = "E_INVALID") -> None:
        self.wrong.append(Finding(code, message, field=place))

    def read(self, graph: Mapping[str, Any]) -> None:
        self.left_out |= dict.fromkeys(name for name, value in graph.items() if name not in _OF_GRAPH and value)
        if "links" in graph and "edges" in graph:
            self.problem("/edges", "appears with `links`; keep only the one that has the edges")
        for place, node in self._iter_objects(graph, "nodes", _OF_NODE):
            self._read_node(place, node)
        for place, edge in self._iter_objects(graph, "links" if "links" in graph else "edges", _OF_EDGE):
            self._read_edge(place, edge)

    def _iter_objects(
        self, graph: Mapping[str, Any], name: str, known_names: set[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the objects of a list with their places; stops once there are more problems than are reported."""
        values = graph.get(name)
        if not isinstance(values, list):
            self.problem(f"/{name}", f"is {show_value(values)}, not a list")
            return
        for at, value in enumerate(values):
            if len(self.wrong) > MOST_FINDINGS:
                return
            if isinstance(value, dict):
                self.left_out |= dict.fromkeys(value.keys() - known_names)
                yield f"/{name}/{at}", value
            else:
                self.problem(f"/{name}/{at}", f"is {show_value(value)}, not an object")

    def _read_node(self, place: str, node: Mapping[str, Any]) -> None:
        identity = self._read_id(place, node, "id")
        fields = self._read_texts(place, node, _NODE)
        if identity is None:
            return
        if identity in self.places:
            message = f"{show_value(identity)} is the id of {self.places[identity]} too"
            self.problem(f"{place}/id", message, "E_DUP_IDENTITY")
        self.places.setdefault(identity, place)
        self.nodes[identity] = {"id": identity, "label": identity, **fields}

    def _read_edge(self, place: str, edge: Mapping[str, Any]) -> None:
        ends = [self._read_id(place, edge, name) for name in ("source", "target")]
        for name, end in zip(("source", "target"), ends, strict=True):
            if end is not None and end not in self.places:
                self.problem(f"{place}/{name}", f"no node has the id {show_value(end)}", "E_DANGLING_EDGE")
        fields = {"relation": _UNNAMED, **self._read_texts(place, edge, _EDGE), **self._read_confidence(place, edge)}
        if problem := scalar_problem(fields["relation"]):
            self.problem(f"{place}/relation", problem, "E_IDENTITY")
        if None in ends:
            return
        key = (str(ends[0]), str(ends[1]), fields["relation"])
        record = {FROM: key[0], TO: key[1], **fields}
        sibling = self.edges.get(key)
        self.joined += sibling is not None
        self.edges[key] = record if sibling is None else min(record, sibling, key=_rank_edge)

    def _read_id(self, place: str, attributes: Mapping[str, Any], name: str) -> str | None:
        value = _normalize_text(attributes.get(name))
        if problem := scalar_problem(value):
            self.problem(f"{place}/{name}", problem, "E_IDENTITY")
        return value if isinstance(value, str) and not problem else None

    def _read_texts(
        self, place: str, attributes: Mapping[str, Any], field_sources: Mapping[str, tuple[str, ...]]
    ) -> dict[str, str]:
        """Return the given attributes as the text fields of a record, by `field_sources`."""
        texts = {}
        for field_name, names in field_sources.items():
            name = next((name for name in names if attributes.get(name) not in (None, "")), "")
            value = _normalize_text(attributes.get(name))
            if isinstance(value, str) and len(value) > _LONGEST:
                self.problem(f"{place}/{name}", f"has {len(value):,} characters, more than {_LONGEST:,}")
            elif isinstance(value, str):
                texts[field_name] = self._file(str(attributes[name])) if field_name == "file" else value
            elif name:
                self.problem(f"{place}/{name}", f"is {show_value(value)}, not a text")
        return texts

    def _file(self, name: str) -> str:
        """Return a file's name as every clone has it."""
        return posixpath.normpath(name.replace("\\", "/")).removeprefix(f"{self.home}/")

    def _read_confidence(self, place: str, edge: Mapping[str, Any]) -> dict[str, Any]:
        """Return `confidence`, 0 to 1, and `evidence`: the word that stands for it, or accompanies it."""
        scores = {name: edge[name] for name in _CONFIDENCE if edge.get(name) is not None}
        word = scores.pop("confidence") if isinstance(scores.get("confidence"), str) else None
        for name, value in scores.items():
            if type(value) not in (int, float) or not 0 <= value <= 1:
                self.problem(f"{place}/{name}", f"must be a number from 0 to 1, is {show_value(value)}")
        number = next(iter(scores.values()), None)
        if word is not None and (len(word) > _LONGEST or (number is None and word not in _WORDS)):
            self.problem(
                f"{place}/confidence", f"must be a number from 0 to 1, or {', '.join(_WORDS)}; is {show_value(word)}"
            )
        number = _WORDS.get(word or "") if number is None else number
        fields = {"confidence": float(number) if isinstance(number, (int, float)) else None, "evidence": word}
        return {name: value for name, value in fields.items() if value is not None}

    def notices(self) -> Iterator[Notice]:
        if self.left_out:
            names = sorted(self.left_out)
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield Notice("W_ARCH", f"not kept of the graph: {', '.join(map(show_value, names[:_MOST_NAMED]))}{more}")
        if self.joined:
            message = (
                f"{self.joined} edges repeat the ends and relation of another edge; the most confident ones were kept"
            )
            yield Notice("W_ARCH", message)


def _normalize_text(value: Any) -> Any:
    """Return a text, or an integer as text, in the normal form of records; anything else as it is."""
    if type(value) is int:
        return str(value)
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def _rank_edge(edge: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key by which one of several equal edges is kept, whatever the order of the file."""
    return (-edge.get("confidence", 0.0), *(edge.get(name, "") for name in ("file", "location", "evidence")))
