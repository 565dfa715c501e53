"""Actions: what may be asked of a base from outside, with inputs and outputs as JSON Schema.

An action's annotations and defaults say what a parameter may be. `parameters` says what it means, once for all
actions that have it.
"""

import inspect
import types
import typing
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

from msgspec import Struct

from duckkb.actions.registry import parameters
from duckkb.caller import Caller, Role

if typing.TYPE_CHECKING:
    from duckkb.engine.base import Base

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_STAND_INS = {"np": types.SimpleNamespace(ndarray=Sequence[float])}
"""Replacements for names in annotations that only type checkers import."""
_WHOLE = {"at": " For callers who may see the whole base."}

Schema = Mapping[str, Any]


class Action(Struct, frozen=True):
    """An action: a function that callers may run, with its rights, its schemas and its presentation.

    It names the function (`actions.asking:find`), the lowest role, and whether it writes (an action that
    `repeats` may be repeated without further effect). `description` is for people, and for models that choose
    among actions.

    `shape` is the JSON Schema of the plain object that the function `answer` of `answers` makes of the result,
    or its name (`shapes:FOUND`); `rows` is the part of it that is printed a line each. `section` is that of
    `duckkb --help` for a command made of the action alone. `privileged` parameters are for admins only.
    `prepare` is a function that is called first with the whole base, the caller and the arguments, and returns
    whether it changed the configuration (`actions.memory.memories:make_scope`).

    `form` parameters do not go to the function: they choose what of the answer is returned, and `at` the commit
    that is asked. A `lenient` action answers even while records cannot be read. An action that `needs_whole` is
    hidden from callers who see a part, and refused to them.
    """

    name: str
    source: str
    description: str
    shape: str | Schema
    answer: str = "as_is"
    role: Role = "viewer"
    writes: bool = False
    repeats: bool = True
    privileged: frozenset[str] = frozenset()
    form: tuple[str, ...] = ()
    lenient: bool = False
    needs_whole: bool = False
    prepare: str = ""
    rows: str = ""
    section: str = ""

    def is_for(self, caller: Caller) -> bool:
        """Return whether a caller can ever use the action."""
        return caller.may(self.role) and (caller.types is None or not self.needs_whole)

    @property
    def summary(self) -> str:
        """The first sentence of the description."""
        return first_sentence(self.description)

    @property
    def output(self) -> Schema:
        """The JSON Schema of its answer as a plain object."""
        schema: Schema = _import_source(f"actions.registry.{self.shape}") if isinstance(self.shape, str) else self.shape
        return schema

    @property
    def function(self) -> Callable[..., Any]:
        """The function of the action: it takes a base, then the parameters."""
        plain: Callable[..., Any] = inspect.unwrap(_import_source(self.source))
        return plain

    @property
    def positional(self) -> tuple[str, ...]:
        """The names of the parameters that a command takes without an option, in their order."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        return tuple(parameter.name for parameter in self._list_parameters() if parameter.kind in kinds)

    def run_preparation(self, base: "Base", caller: Caller, given: Mapping[str, Any]) -> bool:
        """Make what the action needs; return whether the base has to be opened again."""
        return bool(self.prepare) and bool(_import_source(self.prepare)(base, caller, **given))

    @property
    def input(self) -> dict[str, Any]:
        """The JSON Schema (2020-12) of its parameters; others are refused."""
        arguments = list(self._list_parameters())
        hints = _resolve_hints(self.function, {argument.name for argument in arguments})
        properties = {argument.name: self._build_rule(argument, hints[argument.name]) for argument in arguments}
        form = {name: dict(parameters.FORM[name]) for name in self.form}
        properties |= {
            name: rule | {"description": parameters.describe_parameter(self.name, name) + _WHOLE.get(name, "")}
            for name, rule in form.items()
        }
        required_names = [argument.name for argument in arguments if argument.default is argument.empty]
        return {"type": "object", "properties": properties, "required": required_names, "additionalProperties": False}

    def object_of(self, base: "Base", value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of the function for these arguments as a plain object."""
        answer: dict[str, Any] = _import_source(f"actions.registry.answers:{self.answer}")(base, value, given)
        return answer

    def call(self, base: "Base", given: Mapping[str, Any]) -> Any:
        """Call the function with arguments that fit `input`."""
        given = {name: value for name, value in given.items() if name not in self.form}
        names = list(self._list_parameters())
        many = next((argument for argument in names if argument.kind is argument.VAR_POSITIONAL), None)
        if many is None:
            return self.function(base, **given)
        first = [argument.name for argument in names[: names.index(many)]]
        keywords = {name: value for name, value in given.items() if name not in (*first, many.name)}
        return self.function(base, *(given[name] for name in first), *given[many.name], **keywords)

    def _list_parameters(self) -> Iterator[inspect.Parameter]:
        arguments = list(inspect.signature(self.function).parameters.values())[1:]
        return (argument for argument in arguments if argument.name not in parameters.NOT_OFFERED)

    def _build_rule(self, argument: inspect.Parameter, hint: Any) -> dict[str, Any]:
        rule = schema_of(hint)
        if argument.kind is argument.VAR_POSITIONAL:
            rule = {"type": "array", "items": rule, "minItems": 1}
        rule |= parameters.limits(self.name, argument.name)
        if argument.default not in (argument.empty, None):
            rule["default"] = list(argument.default) if isinstance(argument.default, tuple) else argument.default
        admin = " Admins only." if argument.name in self.privileged else ""
        return rule | {"description": parameters.describe_parameter(self.name, argument.name) + admin}


def first_sentence(text: str) -> str:
    """Return the first sentence of a text on one line, with a full stop."""
    return text.partition(". ")[0].removesuffix(".") + "."


def _import_source(source: str) -> Any:
    module, _, name = source.partition(":")
    return getattr(import_module(f"duckkb.{module}"), name)


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of an annotation. Raises TypeError for a type without a form in JSON."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is Literal:
        return {"type": "string", "enum": [*inner]}
    if origin in (typing.Union, types.UnionType):
        schemas = [schema_of(item) for item in inner if item is not type(None)]
        different = [item for at, item in enumerate(schemas) if item not in schemas[:at]]
        return different[0] if len(different) == 1 else {"anyOf": different}
    if origin is tuple and inner[-1:] != (...,):
        items = [schema_of(item) for item in inner]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object"}
    if isinstance(origin, type) and issubclass(origin, Sequence | frozenset):
        return {"type": "array", "items": schema_of(inner[0])}
    raise TypeError(f"no JSON Schema for {hint}")


def _resolve_hints(function: Callable[..., Any], names: Container[str]) -> dict[str, Any]:
    """Resolve the annotations of these parameters only; others may name what is not imported."""
    annotations = {name: hint for name, hint in function.__annotations__.items() if name in names}
    return typing.get_type_hints(
        types.SimpleNamespace(__annotations__=annotations), {**function.__globals__, **_STAND_INS}
    )
