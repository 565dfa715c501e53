"""What a forked child does with the Python API while calls fail: the faults begin and end where the session says."""

import json
from typing import Any

import duckkb
from duckkb.errors import DuckkbError
from tests.campaigns.fault_hooks import Hooks


def put_fails_then_works(hooks: Hooks) -> None:
    """An open base whose put fails: what it holds then and after the next put, as one JSON object on stdout."""
    hooks.armed = False
    said: dict[str, Any] = {}
    with duckkb.open(".", lock_timeout=5) as kb:
        kb.find("Note", "alpha")  # rows and words are mirrored, so that they could go wrong
        said["before"] = _seen(kb)
        hooks.armed = True
        try:
            kb.put("Note", [{"id": "a", "text": "omega"}, {"id": "zz", "text": "omega"}])
        except DuckkbError as error:
            said |= {"error": error.code, "committed": bool(error.details.get("committed"))}
        hooks.armed = False
        said["failed"] = hooks.failed
        said["after"] = _seen(kb)
        said["receipt"] = kb.put("Note", [{"id": "a", "text": "omega"}, {"id": "zz", "text": "omega"}]).updated
        said["at last"] = _seen(kb)
        said["again"] = kb.put("Note", [{"id": "a", "text": "omega"}, {"id": "zz", "text": "omega"}]).unchanged
        said["check"] = len(kb.check().findings)
    print(json.dumps(said), flush=True)


def _seen(kb: Any) -> list[Any]:
    """The two records by truth, by words and by their rows, which must agree."""
    texts = {record["id"]: record.get("text") for record in kb.list("Note") if record["id"] in ("a", "zz")}
    found = sorted(hit.record["id"] for hit in kb.find("Note", "omega"))
    rows = sorted(hit.record["id"] for hit in kb.find("Note", where="text = 'omega'"))
    return [texts, found, rows]
