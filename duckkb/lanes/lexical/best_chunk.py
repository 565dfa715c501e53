"""Which chunk of a record to show: the one that holds the most of what a lexical query asked for."""

from collections.abc import Callable, Iterable, Sequence

from duckkb.entries import IndexEntry, Tokens
from duckkb.lanes.lexical.fields import WordsField, split
from duckkb.lanes.lexical.query import Clause
from duckkb.values import dataclass

_NOTHING = IndexEntry("", 0, "")


@dataclass(frozen=True, slots=True)
class ChunkClauses:
    """The clauses that a chunk is searched for. `rarity` of a field's token says how much one find counts."""

    clauses: Sequence[Clause] = ()
    fields: Sequence[WordsField] = ()
    rarity: Callable[[str, str], float] = lambda field, token: 0.0

    def best(self, entries: Iterable[IndexEntry]) -> IndexEntry:
        """The entry with the most weight of distinct finds, the first of equals."""
        searched = list(entries)
        if not self.clauses or len(searched) < 2:
            return searched[0] if searched else _NOTHING
        return max(searched, key=self._weight)

    def _weight(self, entry: IndexEntry) -> float:
        assert entry.tokens is not None, "only entries with tokens are weighed"
        stems = {
            words.name: set(words.stems(set(split(entry.tokens.words))))
            for words in self.fields
            if words.holds(entry.field)
        }
        sequence = set(split(entry.tokens.sequence))
        return sum(
            self._stem_weight(clause, stems)
            if clause.part == "word"
            else self._token_weight(clause, entry.tokens, sequence)
            for clause in self.clauses
        )

    def _stem_weight(self, clause: Clause, stems: dict[str, set[str]]) -> float:
        (term,) = clause.tokens
        return clause.weight * self.rarity(clause.field, term) if term in stems.get(clause.field, ()) else 0.0

    def _token_weight(self, clause: Clause, tokens: Tokens, sequence: set[str]) -> float:
        """A phrase counts once for each of its tokens and again as a whole: half of it may lie in the next chunk."""
        if clause.part == "prefix":
            return float(any(token.startswith(clause.tokens[-1]) for token in sequence))
        weight = sum(self.rarity(clause.field, token) for token in clause.tokens if token in sequence)
        whole = len(clause.tokens) > 1 and f" {' '.join(clause.tokens)} " in f" {tokens.sequence} "
        return weight * (2.0 if whole else 1.0)
