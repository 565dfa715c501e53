"""The options that several verbs share: value types, declarations, and the values of options of all verbs."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar, cast

import click

from duckkb.cli import record_formats
from duckkb.operations.action import DESCRIBED
from duckkb.types.errors import UsageError, shell_word

_LONGEST_WAIT = 86_400.0  # seconds
Callback = TypeVar("Callback", bound=Callable[..., Any])
Option = Callable[[Callback], Callback]


class Seconds(click.FloatRange):
    """A range of seconds that excludes NaN: a deadline of NaN would never pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is not a number", param, ctx)
        return seconds


class WholeNumber(click.IntRange):
    """A range of integers, or any integer, called `integer` in the help."""

    name = "integer"


class PathName(click.ParamType[str]):
    """A path that the user names.

    A path that is `written` to passes the guard of `truth.outside` first; `tests/shape/test_written_paths.py`
    checks that claim against the verbs.
    """

    name = "path"

    def __init__(self, *, written: bool = False) -> None:
        self.written = written

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)


class Format(click.Choice[str]):
    """The name of a format; a wrong name suggests the nearest.

    A verb's `own` formats come first, and the first is the default. `md` and `markdown` are the same: the
    verb's own document if it has one, else a table.
    """

    def __init__(self, *own: str) -> None:
        shared = (name for name in record_formats.FORMATS if name != "md" or "markdown" not in own)
        super().__init__(tuple(dict.fromkeys((*own, *shared))))

    @property
    def help(self) -> str:
        names = [f"{name} (or md)" if name == "markdown" else name for name in self.choices]
        return f"How results are printed: {names[0]} (default), {', '.join(names[1:])}."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        synonym = {"md": "markdown", "markdown": "md"}.get(str(value))
        return super().convert(value if value in self.choices or not synonym else synonym, param, ctx)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        import difflib

        near = difflib.get_close_matches(str(value).lower(), self.choices, 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        return f"Unknown format {value!r}. {hint}Formats: {', '.join(self.choices)}."


def split_front(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the options before its verb, and the rest.

    A base that is named anywhere comes first among these options. Options with a missing or invalid value stay
    in the rest.
    """
    base: list[str] = []
    front: list[str] = []
    words: list[str] = []
    at = 0
    while at < len(args) and args[at] != "--":
        name, equals, value = args[at].partition("=")
        value = value if equals else "".join(args[at + 1 : at + 2])
        size = 1 if equals or name == "--json" else 2
        if name == "--kb" and value:
            base = [name, value]
        elif not words and (args[at] == "--json" or (name == "--format" and value in Format().choices)):
            front += args[at : at + size]
        else:
            words.append(args[at])
            size = 1
        at += size
    return [*base, *front], [*words, *args[at:]]


def read_front_options() -> dict[str, Any]:
    """Return the values of the options of all verbs, given before the verb or behind it."""
    settings: dict[str, Any] = click.get_current_context().ensure_object(dict)
    return settings


def choose_format(default: str = "jsonl") -> str:
    """Return the format that the command line asks for, else the verb's `default`."""
    form: str = "json" if read_front_options().get("json") else read_front_options().get("format") or default
    params = click.get_current_context().command.params
    format_types = (
        format_type.type for format_type in params if isinstance(format_type.type, Format)
    )  # given before the verb, `md` is not resolved yet
    return next((format_type.convert(form, None, None) for format_type in format_types if form == "md"), form)


def wants_json() -> bool:
    """Return whether a verb with metadata prints its whole answer as one object."""
    return choose_format() == "json"


def read_backend() -> str | None:
    """Return the address of the target that answers instead of a clone, by --backend or DUCKKB_BACKEND."""
    from duckkb import config

    address: str | None = read_front_options().get("backend")
    return address or config.environment().backend


def lock_timeout() -> float:
    """Return how long to wait for another process, in seconds."""
    return float(read_front_options().get("lock_timeout", 60.0))


def agree(given: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` where --json and another format are given."""
    if given.get("json") and given.get("format") not in (None, "json"):
        raise click.UsageError(f"--json and --format {given['format']} contradict each other; give one of them")


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            ctx.ensure_object(dict)[key] = value
            agree(ctx.ensure_object(dict))

    return store


def add_common_options(callback: Callback, own_formats: tuple[str, ...] = ()) -> Callback:
    """Add --kb, --format, --json, --lenient and --lock-timeout behind the verb; the group reads those before it."""
    form = Format(*own_formats)
    options = (
        click.option("--kb", metavar="PATH", expose_value=False, callback=_remember("kb"), help="The knowledge base."),
        click.option("--format", type=form, metavar="FORMAT", expose_value=False, callback=_remember("format"), help=form.help),
        click.option("--json", is_flag=True, expose_value=False, callback=_remember("json"), help="Results and errors as JSON: --format json."),
        click.option("--lenient", is_flag=True, expose_value=False, callback=_remember("lenient"), help="Skip unreadable lines."),
        click.option("--lock-timeout", type=Seconds(0, _LONGEST_WAIT), metavar="SECONDS", expose_value=False, callback=_remember("lock_timeout"), help="Seconds to wait for another process (60)."),
    )  # fmt: skip
    command: Callback = several(*options)(callback)
    return command


def several(*options: Option[Any]) -> Option[Any]:
    """Combine options that are declared together, in the order of the help."""
    return lambda callback: reduce(lambda command, option: option(command), reversed(options), callback)


def one_of(target: str, *flags: tuple[tuple[str, ...], str, str]) -> Option[Any]:
    """Declare flags (spellings, value, help) that exclude each other; `target` gets the value of the given flag."""

    def keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        before, mine = ctx.params.get(target), next(flag for flag in flags if flag[0] == (*param.opts,))
        if value and before is not None:
            rival = next(spellings[-1] for spellings, name, _ in flags if name == before)
            raise click.UsageError(f"{rival} and {mine[0][-1]} contradict each other; give one of them", ctx)
        ctx.params[target] = mine[1] if value else before

    each = (
        click.option(*spellings, is_flag=True, expose_value=False, callback=keep, help=text)
        for spellings, _, text in flags
    )
    return several(*each)


backend = click.option(
    "--backend",
    metavar="URL",
    expose_value=False,
    callback=_remember("backend"),
    help="Query the base published there (`duckkb publish`) instead of a clone. Default: DUCKKB_BACKEND.",
)
type_name = click.argument("type_name", metavar="TYPE")


class RecordTypeArgument(click.Argument):
    """The TYPE of a record whose identity is the next argument; TYPE/IDENTITY or a citation replaces both."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        arguments = [param for param in ctx.command.params if isinstance(param, click.Argument)]
        return super().handle_parse_result(ctx, _split_names(arguments, cast("dict[str, Any]", opts)), args)


_TYPES, _MORE_RECORDS = ("type_name", "from_type", "to_type"), ("new", "identities")
"""Arguments that are types with an identity behind them, and arguments that are identities of the first argument's
type."""


def _split_names(arguments: Sequence[click.Argument], values: dict[str, Any]) -> Mapping[str, Any]:
    """Fill two arguments from a word that holds type and identity; `values` are those of the whole command line."""
    names = [str(argument.name) for argument in arguments]
    many = names[-1] if arguments[-1].nargs == -1 else ""
    words = [values[name] for name in names if name != many and isinstance(values.get(name), str)]
    words += more_words if isinstance(more_words := values.get(many), tuple) else ()
    pieces: list[str] = []
    for word in words:
        place = names[min(len(pieces), len(names) - 1)]
        pair = (
            split_record_name(word) if place in _TYPES or (place in _MORE_RECORDS and words[0] != pieces[0]) else None
        )
        if pair is not None and place in _TYPES:
            pieces += pair
        else:
            pieces.append(pair[1] if pair is not None and pair[0] == pieces[0] else word)
    plain = names[:-1] if many else names
    if len(pieces) <= len(names) or many:
        values |= dict(zip(plain, pieces, strict=False)) | ({many: tuple(pieces[len(plain) :])} if many else {})
    return values


def split_record_name(word: str) -> tuple[str, str] | None:
    """Split TYPE/IDENTITY or a citation into type and identity; None for another word.

    Raises `errors.UsageError` for a citation of a commit, which only `get` takes.
    """
    if not word.startswith("duckkb:"):
        kind, _, identity = word.partition("/")
        return (kind, identity) if kind and identity else None
    from duckkb.review.history import parse

    citation = parse(word)
    if citation.commit or citation.field:
        raise UsageError(
            "only `get` accepts a citation with a commit or a chunk", suggestion=f"duckkb get {shell_word(word)}"
        )
    return citation.type, citation.identity


record_type = click.argument("type_name", metavar="TYPE", cls=RecordTypeArgument)
dry_run = click.option("--dry-run", is_flag=True, help=DESCRIBED["dry_run"])
force = click.option("--force", is_flag=True, help="Overwrite the file.")
fail_on = click.option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True)
_COUNTED = ("lost", "faded")
_MEASURES = ("ndcg", "recall", *_COUNTED)


def _read_limits(_ctx: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> dict[str, float]:
    """Parse `ndcg=0.05`: a measure, and the number from which it fails."""
    limit_by_measure = {}
    for text in texts:
        name, _equals, number = text.partition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        most = 1e9 if name in _COUNTED else 1
        if name not in _MEASURES or not 0 <= limit <= most or (name in _COUNTED and limit != int(limit)):
            raise click.BadParameter(f"{text!r}: give ndcg=DROP, recall=DROP (0 to 1), lost=NUMBER or faded=NUMBER")
        limit_by_measure[name] = limit
    return limit_by_measure


limits = click.option(
    "--fail-on",
    "limits",
    callback=_read_limits,
    multiple=True,
    metavar="MEASURE=LIMIT",
    help="Exit 1 if mean ndcg or recall falls by this much, or this many judged records are lost or faded (half of their word score gone); repeatable.",
)
allow_shrink = click.option("--allow-shrink", is_flag=True, help=DESCRIBED["allow_shrink"])
allow_weaker = click.option(
    "--allow-weaker",
    is_flag=True,
    help="Report removed or weakened rules for changes as a warning.",
)
mode = one_of(
    "mode",
    (("-s", "--similar"), "similar", "Search by meaning (vectors)."),
    (("-m", "--match"), "match", 'Search by words: "a phrase", -not, prefix*.'),
    (("-H", "--hybrid"), "hybrid", "Both, fused."),
)
