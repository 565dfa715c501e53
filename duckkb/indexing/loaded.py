"""What was read of one cache file, and how much of it may be used."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from duckkb.indexing.cache_files import CacheFile
from duckkb.values import dataclass, field

if TYPE_CHECKING:
    from duckkb.indexing.cache_format import Segment


@dataclass
class Loaded:
    """One kind of row of one file: what of it may be used. Of a file that was not made here that are the rows that a
    sample vouches for: those among which it was drawn."""

    file: CacheFile
    hash: str
    segment: "Segment"
    trusted: bool
    vouched: set[bytes] = field(default_factory=set)

    @property
    def usable(self) -> Collection[bytes]:
        """The keys whose rows may be used."""
        return self.segment.index.keys() if self.trusted else self.vouched
