"""Steps into a value: dotted paths, brackets and the JSON arrows."""

import re

from duckkb.errors import FilterError
from duckkb.lanes.sql.kinds import element, is_list
from duckkb.lanes.sql.terms import Term, list_error, named

_STEP = re.compile(r"""\.([^.\[\]"$*]+)|\."([^"]+)"|\[(\d+)\]""")


def inside(term: Term, step: str | int) -> Term:
    """The value at a key or an index (from 0) of JSON, or of a text that holds JSON."""
    if term.kind == "text":
        guarded = f"(CASE WHEN json_valid({term.sql}) THEN {term.sql} END)"
        term = Term(guarded, "json", term.name)
    if is_list(term.kind):
        raise list_error(term)
    if term.kind != "json":
        raise FilterError(
            f"{term.name} is {named(term.kind)} and has nothing inside.",
            # `a = b->>'k'` is read as `(a = b)->>'k'`
            suggestion="put brackets around (FIELD->>'KEY')" if term.kind == "boolean" else "",
            details={"construct": "path", "field": term.name},
        )
    return Term(term.sql, "json", f"{term.name}.{step}", path=(*term.path, step))


def at_index(term: Term, index: Term) -> Term:
    """`value[index]`: an element of a list, counted from 1 (from the end where negative), or a key of JSON."""
    if not index.constant or index.kind not in ("integer", "text"):
        raise FilterError("An index must be a whole number or a key in quotes.", details={"construct": "index"})
    if index.kind == "text":
        return inside(term, index.value)
    position = max(-1_000_000_000, min(1_000_000_000, index.value))
    if is_list(term.kind):
        return Term(f"{term.sql}[{position}]", element(term.kind), f"{term.name}[{position}]")
    if term.kind == "json" and position >= 1:
        return inside(term, position - 1)
    raise FilterError(
        f"{term.name} has no element [{position}].",
        suggestion="indices count from 1; of a text, substring() takes a part",
        details={"construct": "index", "field": term.name},
    )


def arrow(term: Term, step: Term) -> Term:
    """`value -> step` and `->>`: a key, an index from 0, or a path (`$.a.b[0]` or `/a/b/0`)."""
    if not step.constant or step.kind not in ("integer", "text"):
        raise FilterError("A JSON path must be a constant.", details={"construct": "JSON path"})
    steps = [step.value] if step.kind == "integer" else _steps(step.value)
    for one in steps:
        if isinstance(one, int) and one < 0:
            raise FilterError("An index into JSON counts from 0.", details={"construct": "JSON path"})
        term = inside(term, one)
    return term


def _steps(path: str) -> list[str | int]:
    if path.startswith("/"):
        return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    if not path.startswith("$"):
        return [path]
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise FilterError(
                "A JSON path does not parse.", suggestion="'$.key.inner[0]'", details={"construct": "JSON path"}
            )
        steps.append(int(match[3]) if match[3] else match[1] or match[2])
        position = match.end()
    return steps
