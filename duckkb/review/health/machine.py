"""Checks of the machine: Python, libraries, clock, limits."""

import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from duckkb.review.health.check import Skipped, Surroundings, Verdict, error, ok, warning, worst
from duckkb.settings import DEFAULT_MODEL

EARLIEST = "2025-01-01T00:00:00.000000Z"
"""No clock that is right can say less: duckkb did not exist."""
LEAST_FILES = 256
LEAST_FILE_BYTES = 512 * 1024 * 1024

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?\s*(?P<bounds>[^;]*)(?:;(?P<marker>.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
_NUMERIC = re.compile(r"[^0-9.]")
_BOUND = re.compile(r"(>=|<=|==|!=|<|>)\s*([0-9][0-9.]*)")


def python(ground: Surroundings) -> Verdict:
    try:
        bounds = str(metadata("duckkb")["Requires-Python"])
    except PackageNotFoundError:
        raise Skipped("duckkb runs from a folder and not as a package") from None
    shown = ".".join(map(str, sys.version_info[:2]))
    if not within(shown, bounds):
        return error(f"Python {shown} is not in {bounds}", "make the environment anew with a Python that is")
    return ok(f"Python {shown}")


def libraries(ground: Surroundings) -> Verdict:
    wanted = _required("")
    found = list(_unfit(wanted, "pip install --upgrade duckkb"))
    return worst(found, f"{len(wanted)} as pyproject.toml asks")


def local_extra(ground: Surroundings) -> Verdict:
    """The optional libraries of the offline model: needed where the base names it."""
    needed = ground.wiring.settings.embedding.model == DEFAULT_MODEL
    return _extra("local", needed, "this base does not name the offline model")


def ann_extra(ground: Surroundings) -> Verdict:
    """The optional library of graphs: needed where a type's vectors are to be compared by one."""
    settings = ground.wiring.settings
    needed = any(kind.vectors and kind.settings(settings).vectors.ann == "hnsw" for kind in ground.wiring.ontology)
    return _extra("ann", needed, "no type of this base asks for a graph")


def _extra(extra: str, needed: bool, unneeded: str) -> Verdict:
    wanted = _required(extra)
    missing = [name for name, _ in wanted if _installed(name) is None]
    if len(missing) == len(wanted) and not needed:
        return ok(f"not installed, and {unneeded}")
    if missing and needed:
        return warning(f"not installed: {', '.join(missing)}", f"pip install 'duckkb[{extra}]'")
    present = [(name, bounds) for name, bounds in wanted if name not in missing]
    return worst(_unfit(present, f"pip install --upgrade 'duckkb[{extra}]'"), "installed")


def clock(ground: Surroundings) -> Verdict:
    now = ground.clock.now()
    if now < EARLIEST:
        return warning(f"the clock says a time before {EARLIEST[:4]}", "set the system's clock")
    tree = ground.base.tree
    newest = max((row.record.updated_at for kind in tree.ontology for row in tree.rows(kind)), default="")
    if now < newest:
        said = f"the newest record was changed at {newest}, later than now by this clock"
        return warning(said, "set the system's clock; if it is right, another writer's was not")
    return ok("later than every record's time")


def limits(ground: Surroundings) -> Verdict:
    if sys.platform == "win32":
        raise Skipped("this system has no such limits")
    import resource

    files, size = (resource.getrlimit(name)[0] for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE))
    return worst(_limits(files, size, resource.RLIM_INFINITY), "enough open files, no limit on their size")


def _limits(files: int, size: int, infinity: int) -> Iterator[Verdict]:
    if files != infinity and files < LEAST_FILES:
        yield warning(f"only {files} files may be open at once", "ulimit -n 1024")
    if size != infinity and size < LEAST_FILE_BYTES:
        yield warning(f"a file may not grow over {size} bytes", "ulimit -f unlimited")


def within(found: str, bounds: str) -> bool:
    """Whether a version is within bounds as package metadata writes them; bounds of another form count as kept.

    >>> within("1.5.6", "<2,>=1.5.5"), within("2.0.0", "<2,>=1.5.5"), within("0.3", "==0.3.0")
    (True, False, True)
    """
    have = _numbers(found)
    for sign, bound in _BOUND.findall(bounds):
        order = (have > _numbers(bound)) - (have < _numbers(bound))
        if order not in {">=": (0, 1), "<=": (0, -1), "==": (0,), "!=": (-1, 1), "<": (-1,), ">": (1,)}[sign]:
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    """The numeric parts of a version, without zeros at the end."""
    parts = [int(part) for part in _NUMERIC.split(text)[0].split(".") if part]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def _required(extra: str) -> list[tuple[str, str]]:
    """(package, bounds) that duckkb asks for, always or with one extra."""
    try:
        lines = requires("duckkb") or []
    except PackageNotFoundError:
        raise Skipped("duckkb runs from a folder and not as a package") from None
    found = [match for line in lines if (match := _REQUIREMENT.match(line))]
    named = [extra] if extra else []
    return [
        (match["name"], match["bounds"].strip()) for match in found if _EXTRA.findall(match["marker"] or "") == named
    ]


def _unfit(wanted: Sequence[tuple[str, str]], remedy: str) -> Iterator[Verdict]:
    for name, bounds in wanted:
        found = _installed(name)
        if found is None:
            yield error(f"{name} is not installed", remedy)
        elif not within(found, bounds):
            yield error(f"{name} {found} is not in {bounds}", remedy)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
