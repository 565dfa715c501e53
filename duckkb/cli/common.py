"""What the verbs share: options that work before and after the verb, the open base, results on stdout.

A verb prints by `emit` (one object) or `emit_lines` (records), in the format that the command line asks for.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duckkb.cli import formats, printed
from duckkb.cli.formats import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckkb.actions.folder import Unopened
    from duckkb.app import KnowledgeBase
    from duckkb.queries import Notice, Receipt

_LONGEST_WAIT = 86_400.0  # seconds
Callback = TypeVar("Callback", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A range that NaN is not in: a deadline that is no number would never come."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is no number", param, ctx)
        return seconds


class PathName(click.ParamType[str]):
    """A path that somebody names. One that is `written` to goes through the guard of `truth.outside` before anything is;
    what this says is held against the verbs themselves in `tests/shape/test_written_paths.py`."""

    name = "path"

    def __init__(self, *, written: bool = False) -> None:
        self.written = written

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            ctx.ensure_object(dict)[key] = value

    return store


class Format(click.Choice[str]):
    """The name of a format; a wrong one names the nearest. A verb's `own` come first, and the first is the default. `md` and
    `markdown` are one: the verb's own document where it has one, else a table."""

    def __init__(self, *own: str) -> None:
        super().__init__((*own, *(name for name in formats.FORMATS if name != "md" or "markdown" not in own)))

    @property
    def help(self) -> str:
        names = [f"{name} (or md)" if name == "markdown" else name for name in self.choices]
        return f"How results are printed: {names[0]} (default), {', '.join(names[1:])}."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        other = {"md": "markdown", "markdown": "md"}.get(str(value))
        return super().convert(value if value in self.choices or not other else other, param, ctx)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        import difflib

        near = difflib.get_close_matches(str(value).lower(), self.choices, 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        return f"{value!r} is no format. {hint}There are {', '.join(self.choices)}."


def _remember_format(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if value:
        chosen = ctx.ensure_object(dict)
        chosen["json" if value is True else "format"] = value
        agree(chosen)


def agree(chosen: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` where --json stands beside another format."""
    if chosen.get("json") and chosen.get("format") not in (None, "json"):
        raise click.UsageError(f"--json and --format {chosen['format']} contradict each other; give one of them")


allow_shrink = click.option(
    "--allow-shrink",
    is_flag=True,
    help="Even if it deletes more than max(20, 10 %) of a table (`limits` in config.yaml).",
)


def base_options(callback: Callback) -> Callback:
    """--kb, --format, --json, --lenient and --lock-timeout after the verb; those before it are read by the group."""
    return _with_options(callback, Format())


def base_options_and(*own_formats: str) -> Callable[[Callback], Callback]:
    """`base_options` of a verb that has formats of its own; the first is its default."""
    return lambda callback: _with_options(callback, Format(*own_formats))


def _with_options(callback: Callback, form: Format) -> Callback:
    options = (
        click.option("--kb", metavar="PATH", expose_value=False, callback=_remember("kb"), help="The knowledge base."),
        click.option("--format", type=form, metavar="FORMAT", expose_value=False, callback=_remember_format, help=form.help),
        click.option("--json", is_flag=True, expose_value=False, callback=_remember_format, help="Results and errors as JSON: --format json."),
        click.option("--lenient", is_flag=True, expose_value=False, callback=_remember("lenient"), help="Read on without lines that cannot be read."),
        click.option("--lock-timeout", type=Seconds(0, _LONGEST_WAIT), metavar="SECONDS", expose_value=False, callback=_remember("lock_timeout"), help="How long to wait for another process (60)."),
    )  # fmt: skip
    for option in reversed(options):
        callback = option(callback)
    return callback


at_option = click.option(
    "--at", metavar="REF", help="As it was at a commit, branch or tag; read from git, nothing is checked out."
)


allow_weaker_option = click.option(
    "--allow-weaker",
    is_flag=True,
    help="Take it for a warning that rules by which changes are judged are gone or weaker.",
)


def one_of(target: str, *flags: tuple[tuple[str, ...], str, str]) -> Callable[[Callback], Callback]:
    """Flags of which one at most is given, each (spellings, value, help): the parameter `target` has that one's value."""

    def keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        before, mine = ctx.params.get(target), next(one for one in flags if one[0] == (*param.opts,))
        if value and before is not None:
            other = next(spelled[-1] for spelled, name, _ in flags if name == before)
            raise click.UsageError(f"{other} and {mine[0][-1]} contradict each other; give one of them", ctx)
        ctx.params[target] = mine[1] if value else before

    def decorate(callback: Callback) -> Callback:
        for spelled, _, text in reversed(flags):
            callback = click.option(*spelled, is_flag=True, expose_value=False, callback=keep, help=text)(callback)
        return callback

    return decorate


mode_options = one_of(
    "mode",
    (("-s", "--similar"), "similar", "By meaning: the vector lane."),
    (("-m", "--match"), "match", 'By words: "a phrase", -not, prefix*.'),
    (("-H", "--hybrid"), "hybrid", "Both, fused."),
)


def chosen_format(ctx: click.Context, default: str = "jsonl") -> str:
    chosen = ctx.ensure_object(dict)
    form = "json" if chosen.get("json") else chosen.get("format") or default
    named = (one.type for one in ctx.command.params if isinstance(one.type, Format))  # before the verb any has a name
    return next((one.convert(form, None, ctx) for one in named if form == "md"), form)


def wants_json(ctx: click.Context) -> bool:
    """Whether a verb with metadata prints all of its answer as one object, by `emit`."""
    return chosen_format(ctx) == "json"


def only_json(what: str) -> None:
    """Raise `click.UsageError` where the command line asks for rows of what has none."""
    form = chosen_format(click.get_current_context())
    if form in formats.ROWS:
        raise click.UsageError(f"{what} cannot be printed as {form}; leave --format {form} out")


def unopened(ctx: click.Context) -> "Unopened":
    """The base that the command line names, for what needs none that loads."""
    from duckkb import app

    return app.unopened(ctx.ensure_object(dict).get("kb"))


def lock_timeout(ctx: click.Context) -> float:
    """How long to wait for another process, in seconds."""
    return float(ctx.ensure_object(dict).get("lock_timeout", 60.0))


@contextmanager
def opened(ctx: click.Context, *, first_filter: str | None = None, at: str | None = None) -> "Iterator[KnowledgeBase]":
    """The base that the command line names, closed afterwards; its notices go to stderr. `first_filter` as for `app.open`."""
    from duckkb import app
    from duckkb.errors import NotFound

    chosen = ctx.ensure_object(dict)
    if "proposing" in chosen:
        opening = chosen["proposing"](ctx).opening(lenient=bool(chosen.get("lenient")))
        with app.KnowledgeBase(unopened(ctx).root, opening) as kb:
            yield kb
        return
    kb = app.open(
        chosen.get("kb"),
        lenient=bool(chosen.get("lenient")),
        lock_timeout=lock_timeout(ctx),
        progress=_progress() if sys.stderr.isatty() and not wants_json(ctx) else None,
        first_filter=first_filter,
        at=at,
    )
    with kb:
        try:
            yield kb
        except NotFound as problem:
            if problem.code in ("E_NOT_FOUND", "E_UNKNOWN_TYPE"):
                tell(one for one in kb.notices if one.code == "W_PARTIAL")  # it may be there, and out of sight
            raise


@contextmanager
def judging(ctx: click.Context) -> "Iterator[None]":
    """Around a command that gives a verdict: where it cannot, a format whose readers do not see stderr says so on stdout,
    and the error in JSON carries `outcome`, as exit code 1 is that of findings too."""
    from duckkb.errors import DuckkbError

    try:
        yield
    except DuckkbError as problem:
        from duckkb.review.reports.findings import COULD_NOT_RUN
        from duckkb.review.reports.formats import STOPPED

        form = chosen_format(ctx)
        for line in STOPPED[form].lines(problem, _prefix(ctx)) if form in STOPPED else ():
            printed.result(line)
        problem.details = {**problem.details, "outcome": COULD_NOT_RUN}
        raise


def _prefix(ctx: click.Context) -> str:
    """The folder of the base inside its repository, as far as both can be found."""
    from duckkb import config
    from duckkb.errors import DuckkbError
    from duckkb.truth.git import places

    with suppress(DuckkbError, OSError):
        root = config.find_root(Path.cwd(), ctx.ensure_object(dict).get("kb"), config.environment())
        found = places.find_repository(root)
        return found.prefix if found else ""
    return ""


def _progress() -> Callable[[str, int, int], None]:
    """A counter that rewrites its own line on a terminal."""

    def show(label: str, done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        with suppress(OSError):
            click.echo(f"\r{label} {done}/{total}{end}", nl=False, err=True)

    return show


def emit(line: Mapping[str, Any] | Sequence[Any]) -> None:
    """One result on stdout: a line of JSON, one row of csv or md, a table with a row a field. An array is JSON alone."""
    form = chosen_format(click.get_current_context())
    if form not in formats.ROWS:
        printed.result(dumps(line))
    elif not isinstance(line, Mapping):
        only_json("an array")
    elif formats.ROWS[form].by_field:
        emit_lines({"field": name, "value": formats.cell(value)} for name, value in line.items())
    else:
        emit_lines([line])


def emit_lines(lines: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Results on stdout, a record a line. `columns` of csv, md and table, where they are known without a record: then
    the header is printed without one too. With --format json one object, `results`."""
    form = chosen_format(click.get_current_context())
    if form == "json":
        printed.result(dumps({"results": list(lines)}))
    elif form in formats.FORMATS and form not in formats.ROWS:
        for line in lines:
            printed.result(dumps(line))
    else:
        held = list(lines)
        names = formats.fields(held, columns)
        if names:
            _rows(formats.ROWS[form], held, names)


def emit_patch(receipt: "Receipt") -> None:
    """What a dry run would write, as git would show it; it has no rows."""
    only_json("a patch")
    printed.result(receipt.patch, end="")


def emit_files(receipt: "Receipt", **more: Any) -> None:
    """The files that were written, a `file` a line; with --format json one object that has `more`."""
    if wants_json(click.get_current_context()):
        emit({"files": list(receipt.files), **more})
    else:
        emit_lines({"file": path} for path in receipt.files)


def _rows(form: formats.RowFormat, records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    written = form.write(records, columns)
    if form.is_verbatim:
        _refuse_commands(written.lines)
    for line in written.lines:
        form.show(line)
    if written.cut:
        printed.note(f"cells cut to fit: {written.cut}; another --format prints them whole")


def _refuse_commands(lines: Sequence[str]) -> None:
    """CSV is data and has no escapes: what the log of a job would obey is not printed there. In a file it is as it is."""
    from duckkb.errors import StateError

    if printed.into_log():
        for number, line in enumerate(lines):
            if printed.has_command(line):
                raise StateError(
                    f"Row {number} would be a command to the forge in the log of this job; nothing was printed.",
                    suggestion="send it to a file (> FILE), or use --format jsonl",
                )


def tell(notices: "Iterable[Notice]") -> None:
    """Notices for people, on stderr, each once."""
    for notice in dict.fromkeys(notices):
        printed.notice(notice.code, notice.message, notice.remedy)


def read_argument_or_stdin(argument: str | None) -> tuple[bytes, bool]:
    """(bytes, whether they are one object given as an argument). With an argument stdin is never read."""
    if argument is not None and argument != "-":
        try:
            return argument.encode("utf-8", "surrogateescape"), True  # the bytes that were typed
        except UnicodeEncodeError:
            return argument.encode("utf-8", "surrogatepass"), True
    if argument is None and sys.stdin.isatty():
        raise click.UsageError("give the object as an argument, or JSONL on stdin")
    return sys.stdin.buffer.read(), False


def read_text() -> str:
    """What stdin holds as text; bytes that are not UTF-8 are an error, whatever the locale says of them."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"stdin is not UTF-8 text (byte {error.start + 1})") from error
