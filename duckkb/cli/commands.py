"""Commands of actions. The action declares what options take and mean; these commands read that."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from duckkb.actions.registry.offered import ACTIONS
from duckkb.actions.registry.parameters import describe_parameter
from duckkb.cli.options import Callback, Option, Seconds, WholeNumber

if TYPE_CHECKING:
    from duckkb.actions.registry.record_lines import FieldChoice


def _parse_fields(ctx: click.Context, param: click.Parameter, value: str | None) -> "FieldChoice | None":
    """Parse `A,B`, or `+A,B`; a name with a comma is in double quotes."""
    if value is None:
        return None
    import csv

    from duckkb.actions.registry.projecting import choose_fields
    from duckkb.errors import UsageError

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
    """The options of an action, by the names of its parameters; all of them where none is named.

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
