"""`kb.collections`: collections as wholes, and the policies that make them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from duckkb.actions import collecting
from duckkb.engine.base import Base
from duckkb.engine.collections import Changed


class Collections:
    """What is done to whole collections. Records in them are put, found and deleted as those of any type."""

    def __init__(self, turn: Callable[[], AbstractContextManager[Base]]) -> None:
        self._turn = turn

    def init(self, name: str, *, policy: str, params: Mapping[str, Any] | None = None) -> Changed:
        """Make a collection: its policy, with `params` set, is written to ontology/collections/NAME.yaml.

        Raises `errors.UsageError` (E_POLICY, E_PARAMS), `errors.Conflict` (E_EXISTS).
        """
        with self._turn() as base:
            return collecting.init(base, name, policy, params or {})

    def list(self) -> list[dict[str, Any]]:
        """Name, policy, records and bytes of each collection."""
        with self._turn() as base:
            return collecting.listing(base)

    def show(self, name: str) -> dict[str, Any]:
        """One collection: as in `list`, with its fields as stored, and how they are searched."""
        with self._turn() as base:
            return collecting.show(base, name)

    def remove(self, name: str, *, confirmed: bool = False) -> Changed:
        """Delete files and definition; raises `errors.Refused` (E_SHRINK) for one with records that is not `confirmed`."""
        with self._turn() as base:
            return collecting.remove(base, name, confirmed)

    def rename(self, name: str, new: str) -> Changed:
        """Give a collection another name; its records keep ids, identities and times."""
        with self._turn() as base:
            return collecting.rename(base, name, new)

    def snapshot(self, name: str, path: str | Path, *, force: bool = False) -> int:
        """Write a collection to one self-contained file; returns its size in bytes."""
        with self._turn() as base:
            return collecting.snapshot(base, name, path, force)

    def restore(self, path: str | Path, *, name: str | None = None) -> Changed:
        """Put a snapshot back, byte for byte, or under another `name`; raises `errors.StateError` (E_SNAPSHOT)."""
        with self._turn() as base:
            return collecting.restore(base, path, name)

    def policies(self) -> "Sequence[dict[str, Any]]":
        """Every policy that `init` takes, with a description and where it stands."""
        with self._turn() as base:
            return collecting.policies(base)

    def check_policies(self, *files: "str | Path") -> "Sequence[dict[str, Any]]":
        """The policies that YAML files declare (without files, the base's own); raises `errors.OntologyError` with
        everything that is wrong with them."""
        with self._turn() as base:
            return collecting.policy_check(base, files)

    def policy(self, name: str) -> dict[str, Any]:
        """One policy as it is written."""
        with self._turn() as base:
            return collecting.policy_show(base, name)
