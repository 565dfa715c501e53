"""Who asks: what a request may see and do."""

from typing import Literal

from msgspec import Struct

Role = Literal["viewer", "editor", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "editor", "admin")
"""From the least to the most: each may what those before it may."""


class Caller(Struct, frozen=True):
    """A caller by `tenant` (a name for logs and limits), `role`, and the types and collections that exist for it; None: all."""

    tenant: str = ""
    role: Role = "admin"
    types: frozenset[str] | None = None

    def may(self, role: Role) -> bool:
        """Whether it has this role, or one above.

        >>> Caller(role="editor").may("viewer"), Caller(role="viewer").may("editor")
        (True, False)
        """
        return ROLES.index(self.role) >= ROLES.index(role)
