"""What the verbs share: options that work before and after the verb, the open base, lines on stdout."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duckkb.cli import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckkb.app import KnowledgeBase
    from duckkb.queries import Notice

_LONGEST_WAIT = 86_400.0  # seconds
Callback = TypeVar("Callback", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A range that NaN is not in: a deadline that is no number would never come."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is no number", param, ctx)
        return seconds


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            ctx.ensure_object(dict)[key] = value

    return store


def base_options(callback: Callback) -> Callback:
    """--kb, --json, --lenient and --lock-timeout after the verb; those before it are read by the group."""
    options = (
        click.option("--kb", metavar="PATH", expose_value=False, callback=_remember("kb"), help="The knowledge base."),
        click.option("--json", is_flag=True, expose_value=False, callback=_remember("json"), help="Results and errors as JSON."),
        click.option("--lenient", is_flag=True, expose_value=False, callback=_remember("lenient"), help="Read on without lines that cannot be read."),
        click.option("--lock-timeout", type=Seconds(0, _LONGEST_WAIT), metavar="SECONDS", expose_value=False, callback=_remember("lock_timeout"), help="How long to wait for another process (60)."),
    )  # fmt: skip
    for option in reversed(options):
        callback = option(callback)
    return callback


def wants_json(ctx: click.Context) -> bool:
    return bool(ctx.ensure_object(dict).get("json"))


@contextmanager
def opened(ctx: click.Context, *, isolate_sql: bool = False) -> "Iterator[KnowledgeBase]":
    """The base that the command line names, closed afterwards; its notices go to stderr. `isolate_sql` is for commands
    that run a filter or SQL."""
    from duckkb import app

    chosen = ctx.ensure_object(dict)
    kb = app.open(
        chosen.get("kb"),
        lenient=bool(chosen.get("lenient")),
        lock_timeout=chosen.get("lock_timeout", 60.0),
        progress=_progress() if sys.stderr.isatty() else None,
        isolate_sql=isolate_sql,
    )
    with kb:
        yield kb


def _progress() -> Callable[[str, int, int], None]:
    """A counter that rewrites its own line on a terminal."""

    def show(label: str, done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        with suppress(OSError):
            click.echo(f"\r{label} {done}/{total}{end}", nl=False, err=True)

    return show


def emit(line: Mapping[str, Any] | Sequence[Any]) -> None:
    """One result on stdout."""
    printed.result(dumps(line))


def emit_lines(lines: Iterable[Mapping[str, Any]]) -> int:
    """Results as JSONL; returns how many there were."""
    count = 0
    for line in lines:
        printed.result(dumps(line))
        count += 1
    return count


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def tell(notices: "Iterable[Notice]") -> None:
    """Notices for people, on stderr, each once."""
    for notice in dict.fromkeys(notices):
        remedy = f" ({notice.remedy})" if notice.remedy else ""
        printed.note(f"{notice.code}: {notice.message}{remedy}")


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
