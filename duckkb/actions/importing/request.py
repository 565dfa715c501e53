"""The request of an import, and its command line."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.errors import shell_word


class ImportRequest(Struct, frozen=True):
    """The request of an import.

    `renames` is {target: source}; `id_fields` are joined to the identity; `types` is {field: type} for text
    tables; `records` is the path of the records inside a JSON document; `encoding` is empty for UTF-8 and for
    files with a byte order mark. A request from a proposal is suggested as a proposal, on a new branch.
    """

    type: str
    files: tuple[str, ...]
    renames: Mapping[str, str] = {}
    id_fields: tuple[str, ...] = ()
    types: Mapping[str, str] = {}
    records: str | None = None
    encoding: str = ""
    merge: bool = False
    dry_run: bool = False
    is_proposal: bool = False

    def command(self, **changes: Any) -> str:
        """Return the command line of this request, with changes.

        >>> ImportRequest("faq", ("faq.csv",)).command(id_fields=("id", "lang"))
        'duckkb import faq faq.csv --id id,lang'
        """
        request = replace(self, **changes)
        words = ["duckkb", *(["propose"] if request.is_proposal else []), "import", request.type, *request.files]
        for option, pairs in (("--map", request.renames), ("--type-of", request.types)):
            words += [word for name, value in pairs.items() for word in (option, f"{name}={value}")]
        words += ["--id", ",".join(request.id_fields)] if request.id_fields else []
        words += ["--records", request.records] if request.records is not None else []
        words += ["--encoding", request.encoding] if request.encoding else []
        words += ["--merge"] if request.merge else []
        words += ["--dry-run"] if request.dry_run else []
        return " ".join(map(shell_word, words))
