"""What two versions of a base are: their files, what each says may exist, and how the one says otherwise."""

from pathlib import Path

from duckkb.review.diff import configuration, sides
from duckkb.review.diff.compare import Types, compare
from duckkb.review.diff.configuration import Configurations, Files, ontology_changes
from duckkb.review.diff.model import Diff, Numbers, OntologyChange, Versions
from duckkb.review.diff.sides import Range
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two versions of the base at `root`, each with the ontology by which it is read."""

    root: Path
    range: Range
    versions: Versions
    both: Configurations
    ontology: tuple[OntologyChange, ...]

    @classmethod
    def of(cls, root: Path, range: Range, files: Files) -> "Comparison":
        """Raises `errors.StateError` (E_REVISION, E_GIT), `errors.Unavailable`, and `errors.OntologyError` where no side's
        configuration loads."""
        versions = sides.read(root, range)
        both = configuration.configurations(root, range, versions, files)
        return cls(root, range, versions, both, ontology_changes(both.old.documents, both.new.documents))

    @property
    def types(self) -> Types:
        return Types(self.both.old.ontology, self.both.new.ontology)

    def diff(self) -> Diff:
        """The changes of records, with the findings of what was read alone."""
        return compare(self.versions, self.types, self.both.new.limits, self.ontology)

    def numbers(self) -> Numbers:
        """The same in numbers, for a fraction of the time."""
        from duckkb.review.diff.numbers import numbers

        found = numbers(self.versions, self.types, self.both.new.limits)
        return found + Numbers(ontology=len(self.ontology), findings=len(self.both.findings))
