"""Callers: what a request may see and do."""

from typing import Literal

from msgspec import Struct

Role = Literal["viewer", "editor", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "editor", "admin")
"""The roles in ascending order; each includes the rights of those before it."""


class Caller(Struct, frozen=True):
    """A caller: its `tenant` (a name for logs and limits), its `role`, and the types and collections it may see.

    Types None means all of them.
    """

    tenant: str = ""
    role: Role = "admin"
    types: frozenset[str] | None = None

    def may(self, role: Role) -> bool:
        """Return whether the caller has this role or a higher one.

        >>> Caller(role="editor").may("viewer"), Caller(role="viewer").may("editor")
        (True, False)
        """
        return ROLES.index(self.role) >= ROLES.index(role)
