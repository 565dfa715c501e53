"""What a forked child does with the Python API while calls fail: the faults begin and end where the session says."""

import json
from typing import Any

import duckkb
from duckkb.engine.repair import state_needs
from duckkb.types.errors import DuckkbError
from tests.harness.faults.hooks import Hooks


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


def answers(hooks: Hooks | None) -> None:
    """What every kind of question gives, as one JSON object on stdout; an error as one that has its code alone."""
    try:
        with duckkb.open(".", lock_timeout=20) as kb:
            said = _answers(kb) | {"needs": [str(need) for need in state_needs(kb._base.wiring.place)]}
    except DuckkbError as error:
        said = {"error": error.code}
    _lift_limits()
    print(json.dumps(said), flush=True)


def answers_and_dies(hooks: Hooks | None) -> None:
    """As `answers`, and nothing is closed behind them."""
    kb = duckkb.open(".", lock_timeout=20)
    print(json.dumps(_answers(kb)), flush=True)


def _lift_limits() -> None:
    """A limit on the size of files is for what the base writes, not for stdout."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def _answers(kb: Any) -> dict[str, Any]:
    page = list(kb.list("Note", limit=1000))
    return {
        "list": page,
        "get": [kb.get("Note", record["id"]) for record in page[::9]],
        "words": _found(kb.find("Note", "common", limit=1000)),
        "one word": _found(kb.find("Note", "w7", limit=1000)),
        "phrase": _found(kb.find("Note", '"common alpha"', mode="match", limit=1000)),
        "changed": _found(kb.find("Note", "fresh OR changed", limit=1000)),
        "vectors": [[hit.record["id"], round(hit.score, 5)] for hit in kb.find("vecs", vector=[1, 2, 3], limit=7)],
        "filter": _found(kb.find("Note", where="size + 0 > 30", limit=1000)),
        "columns": _found(kb.find("Note", where="size > 30", limit=1000)),
        "ids": _found(kb.find("vecs", where="id LIKE 'v1%'", limit=1000)),
        "ends": _found(kb.find("cites", where="from_id > 0 AND to_id > 0", limit=1000)),
        "sql": kb.sql("SELECT count(*), sum(size) FROM note").rows,
    }


def _found(hits: Any) -> list[str]:
    return sorted(json.dumps(hit.record, sort_keys=True) for hit in hits)


def _seen(kb: Any) -> list[Any]:
    """The two records by truth, by words and by their rows, which must agree."""
    texts = {record["id"]: record.get("text") for record in kb.list("Note") if record["id"] in ("a", "zz")}
    found = sorted(hit.record["id"] for hit in kb.find("Note", "omega"))
    rows = sorted(hit.record["id"] for hit in kb.find("Note", where="text = 'omega'"))
    return [texts, found, rows]
