"""Whether the store of a base is whole, where every byte of it is looked at."""

import os

from duckkb.store import base_store
from duckkb.store.base_store import BaseStore
from duckkb.store.place import Place, Unusable
from duckkb.truth.files.part_rows import PartHead, etag


def problem(place: Place) -> str | None:
    """What is wrong with what lies there; None: nothing, or there is none. Makes no file and removes none."""
    path = place.own / base_store.FILE
    if not os.path.lexists(path):
        return None
    database = BaseStore(place).database
    if (found := database.problem()) is not None:
        return found
    try:
        for name, seal, data in database.read("SELECT name, seal, data FROM value"):
            if seal != base_store.sealed(name, data):
                return f"{name} is not as it was written"
        for (number,) in database.read("SELECT number FROM part"):
            if found := _part(database.read("SELECT seal, head, text FROM part WHERE number = ?", (number,)), number):
                return found
    except (Unusable, ValueError) as error:
        return str(error)
    finally:
        database.close()
    return None


def _part(found: list[tuple[bytes, bytes, bytes]], number: int) -> str | None:
    said = f"part {number} is not as it was written"
    for seal, head, text in found:
        if seal != base_store.sealed(f"part/{number}", head):
            return said
        lines = text.split(b"\n")[:-1]
        if b"".join(map(etag, lines)) != PartHead.load(len(lines), head).etags:
            return said
    return None
