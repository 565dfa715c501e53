"""What can go wrong, as values: findings, and a tree of exceptions.

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

Codes are stable; `duckkb.types.codes` has their meanings and remedies. Exit code 2 is for what follows from the
command line, the filter or the ontology alone; 1 is for what depends on stored state.
"""

import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from msgspec import Struct
from msgspec.structs import replace


def shell_word(text: str) -> str:
    r"""Return a text as one word of a suggested command, quoted where a shell needs it.

    >>> shell_word("notes"), shell_word("author = 'ann'")
    ('notes', '"author = \'ann\'"')
    """
    return f'"{text}"' if "'" in text and not re.search(r'["$`\\!\n]', text) else quote(text)


class Finding(Struct, frozen=True):
    """A problem, with its place and the command or edit that fixes it.

    `code` is a rule id of `duckkb.types.codes` (`E_*` error, `W_*` warning). `path` is relative to the knowledge base
    and uses `/`; files of the repository outside the base begin with `../`. `line` counts from 1, 0 where there
    is none. `field` is a JSON pointer or a key. `type` and `identity` name the record, if any (`identity` as
    the CLI writes it).
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

    def prefix_path(self, prefix: str) -> "Finding":
        """Return the finding with its path from the root of the repository; `prefix` is the base's folder there."""
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


class DuckkbError(Exception):
    """The base of every error that duckkb raises on purpose.

    `code` and `exit_code` default to those of the class. `correction` is an argument as the caller gave it, and
    as it should be. A door that knows the whole call suggests that call with this argument corrected; any other
    door prints `suggestion`. `call` is the corrected call of an action, empty where the whole call is unknown.
    """

    code: str = "E_STATE"
    exit_code: int = 1
    correction: tuple[str, str] | None = None
    call: str = ""

    def __init__(
        self,
        message: str,
        code: str | None = None,
        suggestion: str = "",
        details: Mapping[str, Any] | None = None,
        findings: Sequence[Finding] = (),
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.suggestion, self.details, self.findings = message, suggestion, details or {}, findings
        self.code = self.code if code is None else code
        self.exit_code = self.exit_code if exit_code is None else exit_code

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {finding}" for finding in self.findings)])


class UsageError(DuckkbError):
    code = "E_USAGE"
    exit_code = 2


class OntologyError(UsageError):
    code = "E_ONTOLOGY"


class FilterError(UsageError):
    code = "E_FILTER"


class InvalidRecord(UsageError):
    """Records from a caller that do not parse or do not fit; `exit_code` is 1 for records of a stream or file."""

    code = "E_INVALID"


class StateError(DuckkbError):
    pass


class NotFound(StateError):
    code = "E_NOT_FOUND"


class Conflict(StateError):
    code = "E_STALE"


class Refused(StateError):
    code = "E_REFUSED"


class Unreadable(StateError):
    code = "E_UNREADABLE"


class Unavailable(DuckkbError):
    code = "E_UNAVAILABLE"
