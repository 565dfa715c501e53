"""How a verb is declared: its name, the options of all verbs behind its own, and the base that it is about."""

import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import partial, wraps
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from duckkb.actions.registry.action import first_sentence
from duckkb.actions.registry.offered import ACTIONS
from duckkb.cli import options, out, printed
from duckkb.cli.commands import ActionCommand, parameters
from duckkb.cli.options import lock_timeout, read_front_options
from duckkb.cli.overview import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckkb.actions.folder import Unopened
    from duckkb.app import KnowledgeBase

_Callback = Callable[..., Any]
_process = {"is one command": True}


def verb(
    name: str,
    *,
    group: click.Group | None = None,
    formats: tuple[str, ...] = (),
    action: str = "",
    cls: type[click.Command] = ActionCommand,
    **settings: Any,
) -> Callable[[_Callback], click.Command]:
    """A verb, below another where a `group` is given. `formats` are those that it has besides those of all; the first of
    them is its default. `action` is the one of the registry that it asks for, whose `commands.parameters` it takes: its
    description begins the help, and the callback's docstring says what a terminal has besides."""

    def decorate(callback: _Callback) -> click.Command:
        own_params = callback.__dict__.pop("__click_params__", [])
        says = ACTIONS[action].description if action else _read_summary(name) if group is None else ""
        settings.update(_build_help(says, callback), **({"action": action} if action else {}))
        options.add_common_options(callback, formats).__dict__["__click_params__"] += own_params
        command = click.command(name, cls=cls, **settings)(callback)
        if group is not None:
            group.add_command(command)
        return command

    return decorate


def base_verb(
    name: str, *, under: str = "", first_filter: str = "", tells: bool = True, reads: bool = False, **settings: Any
) -> Callable[[_Callback], click.Command]:
    """A `verb` on an open base, which its callback is given first; an option --at says in which revision. What it returns is
    printed: one result, or where `under` names what they are together, lines (`out.lines`). Then it `tells` what must be
    known of the base. `first_filter` is the parameter with the filter that will be asked first. One that only `reads`, as all with
    --at do, answers from HEAD while a merge has left conflicts in the files."""

    def decorate(callback: _Callback) -> click.Command:
        @wraps(callback)
        def run(**given: Any) -> None:
            only_reads = reads or "at" in given
            with open_named_base(
                first_filter=given.get(first_filter), at=given.pop("at", None), reads=only_reads
            ) as kb:
                answer = callback(kb, **given)
                if under:
                    out.lines(answer, under=under)
                elif answer is not None:
                    out.emit(answer)
                if tells:
                    out.tell(kb.notices)

        return verb(name, **settings)(run)

    return decorate


def action_verb(action: str, name: str = "", under: click.Group | None = None) -> click.Command:
    """The verb of an action that has nothing of its own at a terminal: it takes what the action takes and prints what that gives, its
    `rows` a line each."""
    definition = ACTIONS[action]

    @base_verb(name or action.replace("_", "-"), group=under, action=action, tells=False, reads=not definition.writes)
    @parameters()
    def run(kb: "KnowledgeBase", **given: Any) -> None:
        from duckkb.queries import Notice

        answer = kb.run(action, {key: value for key, value in given.items() if value is not None})
        notices = [Notice(**notice) for notice in answer.pop("notices", ())]
        out.lines(answer[definition.rows]) if definition.rows and not options.wants_json() else out.emit(answer)
        out.tell((*kb.notices, *notices))

    return run


def group(name: str) -> Callable[[_Callback], click.Group]:
    """A verb that has others below it."""
    from duckkb.cli.slips import Group

    return lambda callback: click.group(name, cls=Group, **_build_help(_read_summary(name), callback))(
        options.add_common_options(callback)
    )


def _read_summary(name: str) -> str:
    """What the overview says of a verb."""
    return BY_NAME[name].summary if name in BY_NAME else ""


def _build_help(says: str, callback: _Callback) -> dict[str, str]:
    """The help of a command: what is said of it elsewhere, then its docstring; and that in a sentence."""
    text = "\n\n".join(filter(None, [says, cleandoc(callback.__doc__ or "")]))
    return {"help": text, "short_help": first_sentence(" ".join(text.partition("\n\n")[0].split()))}


def serve_commands() -> None:
    """From now on this process runs one command after another, and has threads."""
    _process["is one command"] = False


def end(code: int = 1) -> NoReturn:
    """End the command with this exit code."""
    raise click.exceptions.Exit(code)


def prepare_unopened() -> "Unopened":
    """The base that the command line names, for what needs none that loads."""
    from duckkb import app

    return app.prepare_unopened(read_front_options().get("kb"))


@contextmanager
def open_named_base(
    *, first_filter: str | None = None, at: str | None = None, reads: bool = False
) -> "Iterator[KnowledgeBase]":
    """The base that the command line names, closed afterwards. `first_filter` and `at` as for `app.open`; for what only `reads` as
    it is at HEAD, which is said, while its files are in conflict."""
    from duckkb import app
    from duckkb.errors import NotFound, OntologyError, Unreadable

    settings = read_front_options()
    if "proposing" in settings:
        opening = settings["proposing"]().opening(lenient=bool(settings.get("lenient")))
        with app.KnowledgeBase(prepare_unopened().root, opening) as kb:
            yield kb
        return
    backend = options.read_backend()
    open_at = partial(
        app.open,
        settings.get("kb"),
        lenient=bool(settings.get("lenient")),
        lock_timeout=lock_timeout(),
        progress=printed.progress if sys.stderr.isatty() and not options.wants_json() else None,
        first_filter=None if backend else first_filter,
        command=_process["is one command"],
        backend=backend,
    )
    try:
        kb = open_at(at=at)
    except (Unreadable, OntologyError):
        if not reads or at is not None or not (under_way := _find_operation()):
            raise
        kb = open_at(at="HEAD")
        printed.note(
            f"a {under_way} is in progress, so this is the base as it is at HEAD; `duckkb resolve` settles conflicts"
        )
    with kb:
        if commit := kb.published:
            settings["commit"] = commit
        try:
            yield kb
        except NotFound as problem:
            if problem.code in ("E_NOT_FOUND", "E_UNKNOWN_TYPE"):
                out.tell(
                    notice for notice in kb.notices if notice.code == "W_PARTIAL"
                )  # it may be there, and out of sight
            raise


def _find_operation() -> str:
    """What git has begun in the repository of the base and not ended, such as a merge."""
    from duckkb.truth.git import repository

    return repository.operation_in_progress(prepare_unopened().root) or ""


@contextmanager
def report_missing_verdict() -> "Iterator[None]":
    """Around a command that gives a verdict: where it cannot, a format whose readers do not see stderr says so on stdout,
    and the error in JSON carries `outcome`, as exit code 1 is that of findings too."""
    from duckkb.errors import DuckkbError

    try:
        yield
    except DuckkbError as problem:
        from duckkb.review.reports.findings import COULD_NOT_RUN
        from duckkb.review.reports.formats import STOPPED

        form = options.choose_format()
        for line in STOPPED[form].lines(problem, _prefix()) if form in STOPPED else ():
            printed.result(line)
        problem.details = {**problem.details, "outcome": COULD_NOT_RUN}
        raise


def _prefix() -> str:
    """The folder of the base inside its repository, as far as both can be found."""
    from duckkb import config
    from duckkb.errors import DuckkbError
    from duckkb.truth.git import run

    with suppress(DuckkbError, OSError):
        root = config.find_root(Path.cwd(), read_front_options().get("kb"), config.environment())
        repository = run.find_repository(root)
        return repository.prefix if repository else ""
    return ""
