"""What can go wrong, as values: findings, and one tree of exceptions.

    DuckkbError
    ├── UsageError        the caller can see it without looking at stored state        exit 2
    │   ├── OntologyError     config.yaml or ontology/**/*.yaml does not load          exit 2
    │   ├── FilterError       a --where fragment or an SQL text is refused             exit 2
    │   └── InvalidRecord     a given record does not parse or fit its schema          exit 2
    ├── StateError        depends on what is stored                                    exit 1
    │   ├── NotFound          no such type or record
    │   ├── Conflict          a precondition failed, or the record exists already
    │   ├── Refused           a guard stopped a write; nothing changed
    │   └── Unreadable        truth cannot be read as it stands
    └── Unavailable       a lock, a model, a disk or a limit; trying again may help    exit 1

Codes are stable; their meanings and remedies are in `duckkb.codes`. Exit codes: 2 for what could be known from the
command line, the filter or the ontology alone, 1 for what depends on stored state.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from duckkb.values import dataclass, field


def shell_word(text: str) -> str:
    """A text as one word of a command that is advised: as it is, in double quotes, or however a shell needs it.

    >>> shell_word("notes"), shell_word("author = 'ann'")
    ('notes', '"author = \'ann\'"')
    """
    return f'"{text}"' if "'" in text and not re.search(r'["$`\\!\n]', text) else quote(text)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, where it is, and the command or edit that mends it.

    `code` is a rule id of `duckkb.codes` (`E_*` error, `W_*` warning). `path` is relative to the knowledge base and uses
    `/` (files of the repository outside of it begin with `../`); `line` counts from 1, 0 where there is none; `field` is a JSON pointer or a key; `type` and `identity` name the
    record, where one is known (`identity` as the CLI writes it).
    """

    code: str
    message: str
    path: str = ""
    line: int = 0
    field: str = ""
    remedy: str = ""
    type: str = ""
    identity: str = ""

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E_")

    def rooted(self, prefix: str) -> "Finding":
        """The same with its path from the root of the repository, in which the base lies in the folder `prefix`."""
        path, folder = self.path, prefix
        while folder and path.startswith("../"):
            path, folder = path[3:], folder.rstrip("/").rpartition("/")[0] + "/" if "/" in folder.rstrip("/") else ""
        return replace(self, path=folder + path) if prefix and path else self

    @property
    def place(self) -> str:
        """`path:line`, `path`, or the empty string."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def __str__(self) -> str:
        head = " ".join(part for part in (self.place, self.code, self.field) if part)
        tail = f" ({self.remedy})" if self.remedy else ""
        return f"{head}: {self.message}{tail}"


@dataclass(eq=False)
class DuckkbError(Exception):
    """Base of every error that duckkb raises on purpose."""

    message: str
    code: str = "E_STATE"
    suggestion: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    exit_code: int = 1
    correction: tuple[str, str] | None = None
    """An argument as the caller gave it, and as it should be: a door that knows the whole call suggests it with this alone
    corrected, one that does not says `suggestion`."""
    call: str = ""
    """The call of an action with that alone corrected, for who calls actions; empty where nobody knows the whole call."""

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {finding}" for finding in self.findings)])


@dataclass(eq=False)
class UsageError(DuckkbError):
    code: str = "E_USAGE"
    exit_code: int = 2


@dataclass(eq=False)
class OntologyError(UsageError):
    code: str = "E_ONTOLOGY"


@dataclass(eq=False)
class FilterError(UsageError):
    code: str = "E_FILTER"


@dataclass(eq=False)
class InvalidRecord(UsageError):
    """Records given by a caller that do not parse or do not fit; `exit_code` is 1 where they came as a stream or file."""

    code: str = "E_INVALID"


@dataclass(eq=False)
class StateError(DuckkbError):
    pass


@dataclass(eq=False)
class NotFound(StateError):
    code: str = "E_NOT_FOUND"


@dataclass(eq=False)
class Conflict(StateError):
    code: str = "E_STALE"


@dataclass(eq=False)
class Refused(StateError):
    code: str = "E_REFUSED"


@dataclass(eq=False)
class Unreadable(StateError):
    code: str = "E_UNREADABLE"


@dataclass(eq=False)
class Unavailable(DuckkbError):
    code: str = "E_UNAVAILABLE"
