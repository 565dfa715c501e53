"""Encodes identities, ends of edges and terms as bytes that a database can compare: equal exactly if they are, and
in their order.
"""

from hashlib import blake2b

from duckkb.records import Component, Identity, TypedEnd

_INT, _TEXT, _TUPLE, _TYPED = b"\x01", b"\x02", b"\x03", b"\x04"
_END, _ESCAPED = b"\x00\x01", b"\x00\xff"
_LONGEST_TERM = 1_000


def place_of(identity: Identity) -> bytes:
    """Encode an identity so that bytes sort as `records.identity_key` does.

    >>> place_of((2,)) < place_of((10,)) < place_of(("1",)) < place_of(("10",)) < place_of(("a", 1))
    True
    """
    return b"".join(map(end_of, identity))


def end_of(component: Component) -> bytes:
    """Encode a component so that no encoding is a prefix of another."""
    match component:
        case str():
            return _encode_text(component)
        case int():
            return _INT + (component + (1 << 63)).to_bytes(8, "big")
        case TypedEnd(type=name, id=parts):
            return _TYPED + _encode_text(name)[1:] + b"".join(map(end_of, parts)) + b"\x00"
        case _:
            return _TUPLE + b"".join(map(end_of, component)) + b"\x00"


def _encode_text(value: str) -> bytes:
    return _TEXT + value.encode("utf-8", "surrogatepass").replace(b"\x00", _ESCAPED) + _END


def term_key(token: str) -> bytes:
    """Return the key of a token: the token itself, or for a token too long for an index its beginning and a hash
    of all of it.
    """
    raw = token.encode("utf-8", "surrogatepass")
    return raw if len(raw) <= _LONGEST_TERM else raw[:_LONGEST_TERM] + b"\xff" + blake2b(raw, digest_size=16).digest()


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return a half-open range of keys that covers all tokens with this prefix; for a prefix longer than
    unabridged keys it also covers others.
    """
    first = prefix.encode("utf-8", "surrogatepass")[:_LONGEST_TERM]
    return first, first + b"\xff" * 2  # no byte of UTF-8 is that
