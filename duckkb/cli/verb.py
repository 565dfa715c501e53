"""The declaration of verbs: name, own and common options, and the base that the verb works on."""

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
    """Declare a verb, below another where a `group` is given.

    `formats` are its own formats besides the common ones; the first is its default. `action` is its action in
    the registry, whose `commands.parameters` it takes. The action's description begins the help, and the
    callback's docstring continues it for the terminal.
    """

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
    """Declare a `verb` on an open base, which its callback gets first; the option --at names a revision.

    The callback's result is printed: one result, or lines (`out.lines`) with the common name `under`. With
    `tells`, the base's notices follow. `first_filter` is the parameter with the filter that is asked first. A
    verb that only `reads`, as all do with --at, answers from HEAD while the files have merge conflicts.
    """

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
    """Declare the verb of an action without terminal features: it takes the action's input and prints its output.

    The action's `rows` are printed a line each.
    """
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
    """Declare a verb with verbs below it."""
    from duckkb.cli.slips import Group

    return lambda callback: click.group(name, cls=Group, **_build_help(_read_summary(name), callback))(
        options.add_common_options(callback)
    )


def _read_summary(name: str) -> str:
    """Return a verb's summary in the overview."""
    return BY_NAME[name].summary if name in BY_NAME else ""


def _build_help(says: str, callback: _Callback) -> dict[str, str]:
    """Build the help of a command from `says` and its docstring, and the short help from the first sentence."""
    text = "\n\n".join(filter(None, [says, cleandoc(callback.__doc__ or "")]))
    return {"help": text, "short_help": first_sentence(" ".join(text.partition("\n\n")[0].split()))}


def serve_commands() -> None:
    """Declare that this process runs many commands and has threads."""
    _process["is one command"] = False


def end(code: int = 1) -> NoReturn:
    """End the command with this exit code."""
    raise click.exceptions.Exit(code)


def prepare_unopened() -> "Unopened":
    """Return the base that the command line names, for tasks that load none."""
    from duckkb import app

    return app.prepare_unopened(read_front_options().get("kb"))


@contextmanager
def open_named_base(
    *, first_filter: str | None = None, at: str | None = None, reads: bool = False
) -> "Iterator[KnowledgeBase]":
    """Open the base that the command line names, and close it at the end of the block.

    `first_filter` and `at` are as for `app.open`. A command that only `reads` gets HEAD, with a note, while the
    files are in conflict.
    """
    from duckkb import app
    from duckkb.errors import NotFound, OntologyError, Unreadable

    settings = read_front_options()
    if "proposing" in settings:
        opening = settings["proposing"]().build_open_options(lenient=bool(settings.get("lenient")))
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
        printed.note(f"a {under_way} is in progress, so this is the base at HEAD; `duckkb resolve` settles conflicts")
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
    """Return the unfinished git operation in the base's repository, such as a merge; empty without one."""
    from duckkb.truth.git import repository

    return repository.operation_in_progress(prepare_unopened().root) or ""


@contextmanager
def report_missing_verdict() -> "Iterator[None]":
    """Report errors of a command that gives a verdict.

    A format whose readers do not see stderr reports them on stdout. The error in JSON carries `outcome`, since
    exit code 1 is also that of findings.
    """
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
    """Return the base's folder inside its repository; empty where either cannot be found."""
    from duckkb import config
    from duckkb.errors import DuckkbError
    from duckkb.truth.git import run

    with suppress(DuckkbError, OSError):
        root = config.find_root(Path.cwd(), read_front_options().get("kb"), config.environment())
        repository = run.find_repository(root)
        return repository.prefix if repository else ""
    return ""
