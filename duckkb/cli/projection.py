"""Which fields of a record are printed: the default form, or what --fields names. Lines are counted in bytes."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import formats
from duckkb.cli.options import chosen_format
from duckkb.cli.out import tell
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.errors import UsageError

Line = Mapping[str, Any]
_READ = ("__id", "__created_at", "__updated_at", "_type", "_etag")
OF_RECORDS = (*_READ, "_chunk")  # a citation names a chunk
OF_HITS = (*_READ, "_score", "_engine", "_scores", "_chunk", "_degraded")
OF_STEPS = (*_READ, "_depth", "_edge")
_UNASKED = ("_degraded", "_explain", "_provenance")  # what must be said, or has an option of its own


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """The names behind --fields, as typed: dotted paths into nested values; with a `+` in front they come beside the default
    form."""

    paths: tuple[str, ...] = ()
    are_more: bool = True


def _parsed(ctx: click.Context, param: click.Parameter, value: str | None) -> FieldChoice | None:
    """`A,B`, or `+A,B`; a name with a comma stands in double quotes."""
    if value is None:
        return None
    import csv

    names = next(csv.reader([value], skipinitialspace=True), [])
    are_more = value.lstrip().startswith("+")
    paths = tuple(dict.fromkeys(name.strip().removeprefix("+" if are_more else "") for name in names))
    if not all(paths) or not paths:
        raise click.BadParameter("name fields: --fields id,author, or --fields +_chunk", ctx, param)
    if not are_more and any(path.startswith("+") for path in paths):
        every = ",".join(path.removeprefix("+") for path in paths)
        raise click.BadParameter(f"a + goes in front of all of them: --fields +{every}", ctx, param)
    return FieldChoice(paths, are_more)


fields_option = click.option(
    "--fields",
    "asked",
    callback=_parsed,
    metavar="NAMES",
    help="Print these fields alone: author,meta.source; or +_chunk, beside what is printed anyway.",
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a line is printed: `asked` by --fields, among duckkb's own fields `own`; without it all but vectors that
    callers gave, by type `given`."""

    asked: FieldChoice | None
    own: Sequence[str]
    given: Mapping[str, Sequence[str]]

    def shown(self, whole: Line, form: Line) -> dict[str, Any]:
        """A line of those fields. `whole` has every field there is, `form` those of the default form. One that lacks fields
        of its record, or has one only in part, says so in `_partial`, so that `put` does not take it for the record."""
        given = self.given.get(whole.get("_type", ""), ())
        are_more = self.asked is None or self.asked.are_more
        line = {name: value for name, value in form.items() if name not in given} if are_more else {}
        paths = self.asked.paths if self.asked else ()
        rows = chosen_format() in formats.ROWS
        for path in paths:
            steps = _steps(path, whole)
            found = _inside(whole, steps)
            if found is not None:
                (line.__setitem__(path, found) if rows else _add(line, steps, found))
        line |= {name: form[name] for name in _UNASKED if name in form}
        business = [name for name in whole if not name.startswith("_")]
        parts = [name for name in business if name in line and line[name] != whole[name]]
        if not rows and (parts or any(name not in line for name in business)):
            line["_partial"] = parts
        return line

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are known without a record."""
        return self.asked.paths if self.asked and not self.asked.are_more else ()

    def lacking(
        self, wholes: Sequence[Line], kinds: Sequence[str], fields: Callable[[str], Sequence[str]]
    ) -> list[str]:
        """The names that no line has. Raises `errors.UsageError` for one that is no field: `fields` gives those of a type."""
        lacking = [path for path in self.asked.paths if not _has(wholes, path, self.own)] if self.asked else []
        known = [name for kind in kinds for name in fields(kind)] if lacking else []
        for path in lacking:
            if not {path, path.partition(".")[0]} & {*known}:
                raise _unknown(path, kinds, (*known, *self.own))
        return lacking

    def left_out(self, wholes: Sequence[Line]) -> str:
        """Which given vectors the default form left out, as --fields names them."""
        if self.asked and not self.asked.are_more:
            return ""
        named = self.asked.paths if self.asked else ()
        found = dict.fromkeys(
            name for whole in wholes for name in self.given.get(whole.get("_type", ""), ()) if name in whole
        )
        return ",".join(name for name in found if name not in named)


def shape(kb: "KnowledgeBase", type_name: str, asked: FieldChoice | None, own: Sequence[str] = OF_RECORDS) -> Shape:
    """What is printed of the records of a type, or of `all`."""
    return Shape(asked, own, kb.given_vectors(type_name))


def project(kb: "KnowledgeBase", wanted: Shape, lines: Sequence[tuple[Line, Line]]) -> list[dict[str, Any]]:
    """The lines as they are printed, of (whole, default form); a notice says what the default form left out. Raises
    `errors.UsageError`."""
    from duckkb.queries import Notice

    wholes = [whole for whole, _ in lines]
    kinds = list(wanted.given or dict.fromkeys(whole["_type"] for whole in wholes))
    if lacking := wanted.lacking(wholes, kinds, kb.field_names) if wholes else []:
        from duckkb.ontology.names import did_you_mean, paths_inside

        near = [did_you_mean(path, paths_inside(wholes, path)) for path in lacking]
        tell(
            [Notice("W_NO_VALUE", f"no record that is printed has {', '.join(lacking)}", " ".join(filter(None, near)))]
        )
    if names := wanted.left_out(wholes):
        tell([Notice("W_OMITTED", f"vectors are not printed: {names}", f"--fields +{names}")])
    return [wanted.shown(whole, form) for whole, form in lines]


def _steps(path: str, whole: Line) -> list[str]:
    """A path as keys. A field that has a dot in its own name goes before what lies inside another."""
    return [path] if path in whole else path.split(".")


def _inside(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _add(line: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    """Put a value at a path."""
    *outer, last = steps
    for step in outer:
        line = line.setdefault(step, {})
    line[last] = value


def _has(wholes: Sequence[Line], path: str, own: Sequence[str]) -> bool:
    if path in own:
        return True
    return not path.startswith("_") and any(_inside(whole, _steps(path, whole)) is not None for whole in wholes)


def _unknown(path: str, kinds: Sequence[str], known: Sequence[str]) -> "UsageError":
    from duckkb.errors import UsageError
    from duckkb.ontology.names import name_known

    options = {"_explain": "--explain prints it", "_provenance": "--provenance prints it"}
    head = path.partition(".")[0]
    if head in (*OF_HITS, *options):
        said = f"{head} is not printed here"
        return UsageError(said, suggestion=options.get(head, f"`duckkb find` prints {head}"))
    said = f"{kinds[0]} has no field {path!r}" if len(kinds) == 1 else f"no type has a field {path!r}"
    return UsageError(said, code="E_FIELD", suggestion=name_known(path, known))
