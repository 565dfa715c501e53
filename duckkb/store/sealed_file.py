"""The format of a sealed file, and the key that opens it.

    duckkb-sealed-1 LF, 32 random bytes (the salt), frames

A frame is 1 MiB of the content (the last frame is shorter), encrypted by AES-256-GCM. Each file has its own
key, derived by HKDF from the user's key, the salt and the file's name. A frame is bound to the name, its number
and whether it is the last: a frame that was changed, moved, left out or taken from another file does not open.
"""

import os
import re
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import scrypt
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from duckkb import atomic_write
from duckkb.errors import StateError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FRAME_BYTES = 1 << 20
SALT_BYTES = KEY_BYTES = 32
_MAGIC = b"duckkb-sealed-1\n"
_TAG_BYTES = 16
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_LEAST_CHARACTERS = 12
_SCRYPT_N, _SCRYPT_R = 1 << 17, 8


class BrokenSeal(Exception):
    """A sealed file differs from what was written under its name with this key."""


class SealKey:
    """The user's key: 32 bytes as hex or base64, or derived by scrypt from a passphrase and `salt`. Its repr
    reveals nothing.

    Raises `errors.StateError` (E_KEY) for a passphrase of less than 12 characters, and if the library is missing.
    """

    __slots__ = ("_secret",)

    def __init__(self, text: str, salt: bytes) -> None:
        if find_spec("cryptography") is None:
            message = "a key is set, and the library that seals with it is not installed"
            raise StateError(message, "E_KEY", "pip install 'duckkb[encryption]'")
        secret = _decode_key(text)
        if secret is None and len(text) < _LEAST_CHARACTERS:
            message = f"the key is neither 32 bytes as hex or base64 nor a passphrase of {_LEAST_CHARACTERS} characters or more"
            raise StateError(message, "E_KEY", "openssl rand -hex 32")
        self._secret = secret or scrypt(
            text.encode(), salt=salt, n=_SCRYPT_N, r=_SCRYPT_R, p=1, maxmem=256 * _SCRYPT_N * _SCRYPT_R, dklen=KEY_BYTES
        )

    def derive_key(self, purpose: str, salt: bytes) -> bytes:
        """Derive 32 bytes from the key for a purpose."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), KEY_BYTES, salt, f"duckkb {purpose}".encode()).derive(self._secret)


def write(path: Path, pieces: Iterable[bytes], key: SealKey, name: str) -> None:
    """Seal a content under a name and replace the existing file: at every moment the old or the new file is there.
    Raises OSError.
    """
    atomic_write.replace_file(path, _seal_pieces(pieces, key, name), mode=0o600)


def read(path: Path, key: SealKey, name: str) -> Iterator[bytes]:
    """Yield the content frame by frame; discard all of it if `BrokenSeal` is raised at the end. Raises OSError."""
    from cryptography.exceptions import InvalidTag

    with path.open("rb") as file:
        magic, salt = file.read(len(_MAGIC)), file.read(SALT_BYTES)
        if magic != _MAGIC or len(salt) != SALT_BYTES:
            raise BrokenSeal
        cipher, number = _build_cipher(key, name, salt), 0
        frame = file.read(FRAME_BYTES + _TAG_BYTES)
        while True:
            following = file.read(FRAME_BYTES + _TAG_BYTES)
            try:
                yield cipher.decrypt(*_bind_frame(frame, name, number, is_last=not following))
            except (InvalidTag, ValueError):
                raise BrokenSeal from None
            if not following:
                return
            frame, number = following, number + 1


def _seal_pieces(pieces: Iterable[bytes], key: SealKey, name: str) -> Iterator[bytes]:
    salt, number, waiting = os.urandom(SALT_BYTES), 0, bytearray()
    cipher = _build_cipher(key, name, salt)
    yield _MAGIC + salt
    for piece in pieces:
        waiting += piece
        while len(waiting) > FRAME_BYTES:
            yield cipher.encrypt(*_bind_frame(bytes(waiting[:FRAME_BYTES]), name, number, is_last=False))
            del waiting[:FRAME_BYTES]
            number += 1
    yield cipher.encrypt(*_bind_frame(bytes(waiting), name, number, is_last=True))


def _build_cipher(key: SealKey, name: str, salt: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key.derive_key(f"file {name}", salt))


def _bind_frame(frame: bytes, name: str, number: int, *, is_last: bool) -> tuple[bytes, bytes, bytes]:
    """Return the nonce, the frame, and the data that it is bound to. A number is a safe nonce, because no two
    files share a key.
    """
    return number.to_bytes(12), frame, b"\0".join((_MAGIC, name.encode(), b"%d" % number, b"%d" % is_last))


def _decode_key(text: str) -> bytes | None:
    """Decode 32 bytes from hex or base64; return None for a passphrase."""
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if _BASE64.fullmatch(text):
        with suppress(NoBase64, ValueError):
            secret = b64decode(text.rstrip("=") + "=", altchars=b"-_" if {"-", "_"} & {*text} else None)
            return secret if len(secret) == KEY_BYTES else None
    return None
