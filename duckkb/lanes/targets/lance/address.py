"""The address of a base in Lance tables: a folder, or a bucket of an object storage.

An address holds no keys of an object storage: its client takes them from the environment (AWS_ACCESS_KEY_ID and
similar), a profile or the machine's role.
"""

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from duckkb.errors import UsageError

STORAGES = {"lance+s3": "s3", "lance+gs": "gs", "lance+az": "az"}
SCHEMES = ("lance", *STORAGES)
_KEPT = 10
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SUGGESTION = "lance:FOLDER, lance+s3://BUCKET/PATH, lance+gs://... or lance+az://..."


class LanceAddress(Struct, frozen=True):
    """The address of Lance tables. `place` has LanceDB's form. `at` is the requested earlier commit by 7 or more
    digits of its hash. The last `kept` publications stay readable.
    """

    place: str
    at: str | None = None
    kept: int = _KEPT

    @classmethod
    def parse(cls, given: str) -> "LanceAddress":
        """Parse an address. Raises `errors.UsageError` (E_URL) if it holds a key, or has an unknown option."""
        scheme, _, location = given.partition(":")
        path, _, query = location.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        at, kept_count = options.pop("at", None), options.pop("keep", str(_KEPT))
        if options:
            raise _build_refusal(
                "the address of Lance tables takes ?at=COMMIT and ?keep=N alone",
                "give keys and endpoints of an object storage by its environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT, ...",
            )
        if at is not None and not _COMMIT.fullmatch(at):
            raise _build_refusal("?at= names a commit by 7 or more digits of its hash", "git log")
        if not kept_count.isascii() or not kept_count.isdigit() or not 1 <= int(kept_count) <= 1_000:
            raise _build_refusal("?keep= is the number of readable publications, 1 to 1000", "?keep=10")
        return cls(_place(scheme.lower(), path), at, int(kept_count))

    @property
    def is_folder(self) -> bool:
        return "://" not in self.place

    @property
    def name(self) -> str:
        """Return the address for display."""
        return f"{self.place}@{self.at}" if self.at else self.place


def _place(scheme: str, path: str) -> str:
    if scheme == "lance":
        folder = path.removeprefix("//")
        if not folder:
            raise _build_refusal("the address names no folder")
        return str(Path(folder).absolute())
    try:
        parts = urlsplit(f"{STORAGES[scheme]}:{path}")
    except ValueError:
        raise _build_refusal("the address of the storage does not parse") from None
    if not parts.netloc:
        raise _build_refusal("the address names no bucket")
    if "@" in parts.netloc:
        raise _build_refusal(
            "the address contains a key", "leave it out, and give it by the environment of the storage"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _build_refusal(message: str, suggestion: str = _SUGGESTION) -> UsageError:
    return UsageError(message, code="E_URL", suggestion=suggestion)
