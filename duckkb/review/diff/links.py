"""Web addresses of a forge for a commit, and for a line of a file at a commit."""

from urllib.parse import quote

from msgspec import Struct

_FORMS = {"github": "", "gitlab": "/-"}
"""The path between a repository's page and its commits, by a word of the forge's host."""


class ForgeLinks(Struct, frozen=True):
    """The addresses of a repository on a forge.

    `page` is that of the repository (`https://github.com/team/kb`), `between` leads from there to its commits.
    `base` and `head` are the commits of either side in hex, empty where the forge does not have that side.
    """

    page: str
    base: str = ""
    head: str = ""
    between: str = ""

    @classmethod
    def from_host(cls, host: str, path: str, base: str, head: str) -> "ForgeLinks | None":
        """Return the links of a repository by its host; None for an unknown kind of forge.

        >>> ForgeLinks.from_host("gitlab.com", "team/kb", "", "abc").line("data/a b.jsonl", 3, is_old=False)
        'https://gitlab.com/team/kb/-/blob/abc/data/a%20b.jsonl#L3'
        """
        between = next((between for word, between in _FORMS.items() if word in host), None)
        return cls(f"https://{host}/{quote(path)}", base, head, between) if between is not None else None

    def commit(self, *, is_old: bool) -> str:
        """Return the page of a side's commit; empty where there is none."""
        commit = self.base if is_old else self.head
        return f"{self.page}{self.between}/commit/{commit}" if commit else ""

    def line(self, path: str, line_no: int, *, is_old: bool) -> str:
        """Return the page of a line; empty where the forge does not have that side.

        `path` is relative to the top of the repository.
        """
        commit = self.base if is_old else self.head
        return f"{self.page}{self.between}/blob/{commit}/{quote(path)}#L{line_no}" if commit else ""
