"""Which fields of a record are printed: the default form, or what --fields names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from duckkb.actions.registry.record_lines import OF_HITS, OF_RECORDS, FieldChoice, Line, Projection
from duckkb.cli import formats
from duckkb.cli.options import chosen_format
from duckkb.cli.out import tell

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.errors import UsageError


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


def known_columns(asked: FieldChoice | None) -> tuple[str, ...]:
    """The columns that are known without a record."""
    return asked.paths if asked and not asked.are_more else ()


fields_option = click.option(
    "--fields",
    "asked",
    callback=_parsed,
    metavar="NAMES",
    help="Print these fields and what names the record: author,meta.source; or +_chunk, beside what is printed anyway.",
)


def project(
    kb: "KnowledgeBase",
    lines: Sequence[tuple[Line, Line]],
    asked: FieldChoice | None,
    *,
    of: str = "",
    own: Sequence[str] = OF_RECORDS,
) -> list[dict[str, Any]]:
    """Lines `of` a type, or of `all`, as they are printed, of (whole, default form); a notice says what the default form left
    out: vectors that callers gave, where the type is named. Raises `errors.UsageError`."""
    from duckkb.queries import Notice

    wholes = [whole for whole, _ in lines]
    given = kb.given_vectors(of) if of else {}
    identity = kb.identity_fields(of or wholes[0]["_type"]) if asked and wholes else {}
    wanted = Projection(asked, own, given, chosen_format() in formats.ROWS, identity)
    kinds = list(wanted.given or dict.fromkeys(whole["_type"] for whole in wholes))
    if lacking := wanted.lacking(wholes) if wholes else []:
        _refuse_unknown(lacking, kinds, [name for kind in kinds for name in kb.field_names(kind)], own)
        from duckkb.ontology.names import did_you_mean, paths_inside

        near = [did_you_mean(path, paths_inside(wholes, path)) for path in lacking]
        tell(
            [Notice("W_NO_VALUE", f"no record that is printed has {', '.join(lacking)}", " ".join(filter(None, near)))]
        )
    if names := wanted.left_out(wholes):
        tell([Notice("W_OMITTED", f"vectors are not printed: {names}", f"--fields +{names}")])
    return [wanted.shown(whole, form) for whole, form in lines]


def _refuse_unknown(paths: Sequence[str], kinds: Sequence[str], known: Sequence[str], own: Sequence[str]) -> None:
    """Raise `errors.UsageError` for a name that is no field of any of the types."""
    for path in paths:
        if not {path, path.partition(".")[0]} & {*known}:
            raise _unknown(path, kinds, (*known, *own))


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
