"""Vectors over a publication: the target names candidates, and their exact cosines are computed here."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from duckkb.errors import UsageError
from duckkb.id_set import IdSet
from duckkb.lanes.order import best_first
from duckkb.lanes.targets.lane import PublishedLane
from duckkb.lanes.vectors.cosine import DOUBT, exact_cosines, unit_query
from duckkb.ontology.model import RecordType
from duckkb.queries import LaneHit
from duckkb.settings import VectorSettings

_MARGIN, _MORE = 16, 4
_FEW = 1 / 20  # share of the records up to which all are compared without the graph

Row = tuple[int, str, int, int, Any, float]
"""Id, field, number of the chunk, place among the record's chunks, vector, product with the query."""


class PublishedVectors(PublishedLane, ABC):
    """Implements `ports.VectorLane` except for the target's own steps. Exact, unless the settings want a graph.
    With a graph, a filtered query continues until enough is found, and compares everything that passes the
    filter if that fails.
    """

    graph = "hnsw"

    def __init__(self, kind: RecordType, settings: VectorSettings) -> None:
        self._kind = kind
        self._settings = settings

    def ask(self, vector: "np.ndarray | Sequence[float]", depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        query = unit_query(vector)
        records, vectors = self._counts()
        if not vectors or depth <= 0 or (allowed is not None and not allowed):
            return []
        self._refuse_other(len(query))
        allowed_ids = None if allowed is None else IdSet.from_ids(allowed)
        depth = min(depth, records if allowed_ids is None else len(allowed_ids))
        is_few = allowed_ids is not None and len(allowed_ids) <= records * _FEW
        fetch = -(-depth * vectors // max(records, 1)) + _MARGIN
        if self._settings.wants_graph(vectors) and not is_few:
            hits = self._rank_hits(self._graph_candidates(query, fetch, allowed_ids), query, depth)
            if len(hits) == depth:
                return hits
        while True:
            rows = self._nearest(query, fetch, allowed_ids)
            hits = self._rank_hits(rows, query, depth)
            if len(rows) < fetch or (len(hits) == depth and hits[-1].score > rows[-1][-1] + DOUBT):
                return hits
            fetch *= _MORE

    def list_missing_texts(self) -> list[tuple[bytes, str]]:
        """Return nothing: vectors that were missing at publication are reported (`ports.Publication.pending`), not
        computed here.
        """
        return []

    def account(self) -> Mapping[str, Any] | None:
        _, vectors = self._counts()
        if not vectors:
            return None
        ann = self.graph if self._settings.wants_graph(vectors) else "exact"
        return {"rows": vectors, "dimension": self._dimension(), "ann": ann}

    @abstractmethod
    def _counts(self) -> tuple[int, int]:
        """Return the numbers of published records and vectors of the type."""

    @abstractmethod
    def _dimension(self) -> int: ...

    @abstractmethod
    def _nearest(self, query: Any, fetch: int, allowed: IdSet | None) -> list[Row]:
        """Return the chunks with the greatest products, falling; fewer than `fetch` if there are no more."""

    @abstractmethod
    def _graph_candidates(self, query: Any, fetch: int, allowed: IdSet | None) -> list[Row]:
        """Return chunks as `_nearest` does, but those that a graph leads to."""

    @abstractmethod
    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        """Return the sort key of each record's identity, by id."""

    def _refuse_other(self, length: int) -> None:
        dimension = self._dimension()
        if dimension != length:
            raise UsageError(
                f"The query vector has {length} dimensions, the stored ones have {dimension}.",
                suggestion="Give a vector of the model that the records were embedded with.",
            )

    def _rank_hits(self, rows: Sequence[Row], query: Any, depth: int) -> list[LaneHit]:
        """Return the first records by the exact cosines of their best chunks; of chunks with the same score the
        first in the record.
        """
        if not rows:
            return []
        scores = exact_cosines(np.array([row[4] for row in rows]), query).tolist()
        best: dict[int, tuple[float, int, str, int]] = {}
        for (record_id, field, seq, at, *_), score in zip(rows, scores, strict=True):
            if record_id not in best or (score, -at) > (best[record_id][0], -best[record_id][1]):
                best[record_id] = score, at, field, seq
        scored_ids = sorted(((chunk[0], record_id) for record_id, chunk in best.items()), reverse=True)
        places = self._order([*best])
        return [
            LaneHit(record_id, score, *best[record_id][2:])
            for score, record_id in best_first(scored_ids, depth, places.__getitem__, slack=0.0)
        ]
