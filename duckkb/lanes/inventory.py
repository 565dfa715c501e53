"""The content list of a lane: the digest of each part of its type, and the id and etag of each row. Comparing two
lists gives the changed rows, regardless of which list is newer.
"""

import json
from collections.abc import Iterable, Mapping

from msgspec import Struct

from duckkb.ports import TypeState

_ROW = 16  # bytes: the id, then the etag
_ID = 8


class PartInventory(Struct, frozen=True):
    """A part: its digest and its rows."""

    digest: str
    rows: bytes

    @classmethod
    def from_rows(cls, digest: str, rows: Iterable[tuple[int, bytes]]) -> "PartInventory":
        """Pack ids and etags."""
        return cls(digest, b"".join([id.to_bytes(_ID, "little", signed=True) + etag for id, etag in rows]))


class Inventory(Struct, frozen=True):
    """The parts by path."""

    parts: Mapping[str, PartInventory]

    @classmethod
    def from_state(cls, state: TypeState, before: "Inventory | None" = None) -> "Inventory":
        """Build the list of a type's present content; reuse unchanged parts of `before` without reading them."""
        parts = before.parts if before is not None else {}
        same = {path: part for path, part in parts.items() if state.digests.get(path) == part.digest}
        return cls(
            {
                path: same.get(path) or PartInventory.from_rows(name, state.read(path))
                for path, name in state.digests.items()
            }
        )

    @classmethod
    def load(cls, data: bytes) -> "Inventory":
        """Parse the output of `dump`; raises ValueError, KeyError and TypeError for anything else."""
        head, _, rows = data.partition(b"\n")
        parts, end = {}, 0
        for path, (digest, size) in json.loads(head).items():
            start, end = end, end + size
            parts[path] = PartInventory(digest, rows[start:end])
        return cls(parts)

    def dump(self) -> bytes:
        """Return all of it as bytes."""
        head = {path: (part.digest, len(part.rows)) for path, part in self.parts.items()}
        return b"\n".join([json.dumps(head).encode(), b"".join([part.rows for part in self.parts.values()])])

    def difference(self, contents: "Inventory") -> frozenset[int]:
        """Return the ids of the rows that are missing or different in either list."""
        rows = self._select_rows_beside(contents) ^ contents._select_rows_beside(self)
        return frozenset(int.from_bytes(row[:_ID], "little", signed=True) for row in rows)

    def _select_rows_beside(self, contents: "Inventory") -> set[bytes]:
        """Select the rows of the parts that the other list lacks or has in another version."""
        parts = [
            part for path, part in self.parts.items() if path not in contents.parts or contents.parts[path] != part
        ]
        return {part.rows[at : at + _ROW] for part in parts for at in range(0, len(part.rows), _ROW)}
