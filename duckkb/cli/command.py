"""The declaration of verbs: name, own and common options, and the base that the verb works on.

Commands of actions. The action declares what options take and mean; these commands read that."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, wraps
from inspect import cleandoc
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from msgspec import Struct

from duckkb.cli import options, output, terminal
from duckkb.cli.options import Callback, Option, Seconds, WholeNumber, lock_timeout, read_front_options
from duckkb.cli.verb_list import BY_NAME
from duckkb.operations.action import describe_parameter, first_sentence
from duckkb.operations.catalog import ACTIONS

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.operations.lifecycle import Unopened
    from duckkb.operations.record_lines import FieldChoice


def _parse_fields(ctx: click.Context, param: click.Parameter, value: str | None) -> "FieldChoice | None":
    """Parse `A,B`, or `+A,B`; a name with a comma is in double quotes."""
    if value is None:
        return None
    import csv

    from duckkb.operations.record_lines import choose_fields
    from duckkb.types.errors import UsageError

    try:
        return choose_fields(next(csv.reader([value.lstrip()], skipinitialspace=True), []))
    except UsageError as problem:
        raise click.BadParameter(problem.message, ctx, param) from None


def _refuse_blank(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("the filter is empty; write a comparison, such as year >= 2020", ctx, param)
    return value


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "after": {"metavar": "NEXT"},
    "at": {"metavar": "REF"},
    "budget": {"metavar": "TOKENS"},
    "candidates": {"spelled": ("--max-rerank-candidates",)},
    "collections": {"spelled": ("-c", "--collection"), "metavar": "NAME"},
    "fields": {"multiple": False, "callback": _parse_fields, "metavar": "NAMES"},
    "first": {"spelled": ("--from",)},
    "graph": {"spelled": ("--name",), "metavar": "NAME"},
    "if_match": {"metavar": "ETAG"},
    "ignore": {"metavar": "FIELD"},
    "k": {"spelled": ("-k",)},
    "label": {"metavar": "EDGE"},
    "limit": {"spelled": ("-l", "-n", "--limit")},
    "lines": {"spelled": ("-l",)},
    "links": {"spelled": ("--link",), "metavar": "URI"},
    "model": {"metavar": "NAME"},
    "most": {"spelled": ("--max-bytes",)},
    "ops": {"spelled": ("--op",)},
    "scope": {"metavar": "SCOPE"},
    "since": {"metavar": "REVISION"},
    "tags": {"spelled": ("--tag",), "metavar": "WORD"},
    "timeout": {"metavar": "SECONDS"},
    "types": {"spelled": ("-t", "--type"), "metavar": "TYPE"},
    "where": {"spelled": ("-w", "--where"), "metavar": "CONDITION", "callback": _refuse_blank},
}
"""What only the terminal has, by parameter: another spelling of the option, the placeholder of its value, and its
parser."""


class ActionOptions(Struct, frozen=True):
    """Options of click for the parameters `names` of an action, or for all its parameters if `names` is empty.

    Required parameters become arguments. `own` settings of `click.Option` override what the action declares.
    """

    names: tuple[str, ...]
    own: Mapping[str, Any]
    action: str = ""

    def make(self, action: str) -> Iterator[click.Parameter]:
        """Make the parameters, of the command's action where this names none."""
        schema = ACTIONS[self.action or action].input
        for name in self.names or schema["properties"]:
            rule, text = schema["properties"][name], describe_parameter(self.action or action, name)
            if name in schema["required"]:
                value, is_list = _find_item_schema(rule)
                yield click.Argument([name], type=_type(value), nargs=-1 if is_list else 1, required=True)
            else:
                yield _make_option(name, rule, {"help": text, **_OPTIONS.get(name, {}), **self.own})


class ActionCommand(click.Command):
    """A command that runs an `action`. Its options are made at the first look: they import the action."""

    _declared: list[Any]

    def __init__(self, *args: Any, action: str = "", **settings: Any) -> None:
        self.action = action
        super().__init__(*args, **settings)

    @property
    def params(self) -> list[click.Parameter]:
        """All arguments and options, in the order of the help."""
        if any(isinstance(part, ActionOptions) for part in self._declared):
            made = (part.make(self.action) if isinstance(part, ActionOptions) else (part,) for part in self._declared)
            self._declared = [*chain.from_iterable(made)]
        return self._declared

    @params.setter
    def params(self, params: list[Any]) -> None:
        self._declared = params


def parameters(*names: str, action: str = "", **own: Any) -> Option[Any]:
    """Add parameters of the verb's action, or of the action named here; all of them without a name.

    With a single name, `own` settings override what the action declares.
    """

    def decorate(callback: Callback) -> Callback:
        callback.__dict__.setdefault("__click_params__", []).append(ActionOptions(names, own, action))
        return callback

    return decorate


def _make_option(name: str, rule: Mapping[str, Any], settings: Mapping[str, Any]) -> click.Option:
    """Make an option from the schema of a parameter."""
    settings = dict(settings)
    spellings = settings.pop("spelled", (f"--{name.replace('_', '-')}",))
    if rule.get("type") == "boolean" and rule["default"]:
        return click.Option(
            [f"--no-{name}", name], is_flag=True, callback=lambda _ctx, _param, value: not value, help=settings["help"]
        )
    if rule.get("type") == "boolean":
        return click.Option([*spellings, name], is_flag=True, **settings)
    value, is_list = _find_item_schema(rule)
    if settings.setdefault("multiple", is_list):
        settings["help"] += " Repeatable."
        settings.setdefault("callback", None if "default" in rule else lambda _ctx, _param, value: value or None)
    settings.setdefault("default", rule.get("default"))
    if value.get("type") == "integer":
        settings.setdefault("metavar", "N")
    shows = settings["default"] not in (None, "", [])
    return click.Option([*spellings, name], type=_type(value), show_default=shows, **settings)


def _find_item_schema(rule: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the schema of a single value of a parameter, and whether the parameter takes a list of them."""
    every = rule.get("anyOf", (rule,))
    lists = [schema for schema in every if schema.get("type") == "array"]
    return (lists[0]["items"] if lists else every[0]), bool(lists)


def _type(rule: Mapping[str, Any]) -> click.ParamType[Any]:
    """Return the type of an option from the schema of its value."""
    if "enum" in rule:
        return click.Choice(rule["enum"])
    least, most = rule.get("minimum"), rule.get("maximum")
    if rule.get("type") == "integer":
        return WholeNumber(least, most)
    if rule.get("type") == "number":
        above = rule.get("exclusiveMinimum")
        return Seconds(least if above is None else above, most, min_open=above is not None)
    return click.STRING


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
                    output.lines(answer, under=under)
                elif answer is not None:
                    output.emit(answer)
                if tells:
                    output.tell(kb.notices)

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
        from duckkb.types.queries import Notice

        answer = kb.run(action, {key: value for key, value in given.items() if value is not None})
        notices = [Notice(**notice) for notice in answer.pop("notices", ())]
        output.lines(answer[definition.rows]) if definition.rows and not options.wants_json() else output.emit(answer)
        output.tell((*kb.notices, *notices))

    return run


def group(name: str) -> Callable[[_Callback], click.Group]:
    """Declare a verb with verbs below it."""
    from duckkb.cli.suggestions import Group

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
    from duckkb.types.errors import NotFound, OntologyError, Unreadable

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
        progress=terminal.progress if sys.stderr.isatty() and not options.wants_json() else None,
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
        terminal.note(f"a {under_way} is in progress, so this is the base at HEAD; `duckkb resolve` settles conflicts")
    with kb:
        if commit := kb.published:
            settings["commit"] = commit
        try:
            yield kb
        except NotFound as problem:
            if problem.code in ("E_NOT_FOUND", "E_UNKNOWN_TYPE"):
                output.tell(
                    notice for notice in kb.notices if notice.code == "W_PARTIAL"
                )  # it may be there, and out of sight
            raise


def _find_operation() -> str:
    """Return the unfinished git operation in the base's repository, such as a merge; empty without one."""
    from duckkb.storage import repository

    return repository.operation_in_progress(prepare_unopened().root) or ""


@contextmanager
def report_missing_verdict() -> "Iterator[None]":
    """Report errors of a command that gives a verdict.

    A format whose readers do not see stderr reports them on stdout. The error in JSON carries `outcome`, since
    exit code 1 is also that of findings.
    """
    from duckkb.types.errors import DuckkbError

    try:
        yield
    except DuckkbError as problem:
        from duckkb.review.report_formats import COULD_NOT_RUN, STOPPED

        form = options.choose_format()
        for line in STOPPED[form].lines(problem, _prefix()) if form in STOPPED else ():
            terminal.result(line)
        problem.details = {**problem.details, "outcome": COULD_NOT_RUN}
        raise


def _prefix() -> str:
    """Return the base's folder inside its repository; empty where either cannot be found."""
    from duckkb import config
    from duckkb.storage import git_process
    from duckkb.types.errors import DuckkbError

    with suppress(DuckkbError, OSError):
        root = config.find_root(Path.cwd(), read_front_options().get("kb"), config.environment())
        repository = git_process.find_repository(root)
        return repository.prefix if repository else ""
    return ""
