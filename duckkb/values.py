"""`dataclass` as the standard library has it, compiled when it is used. Each process imports a hundred of these classes and
makes instances of a third: the standard decorator compiles up to six methods for each, half a millisecond a class, which
was a fifth of what a short command took. Here `__init__` is compiled when the first instance is made, and the other
methods are shared.

Type checkers see the standard decorator. Left out is what duckkb does not use: order, keyword-only fields, InitVar,
`__post_init__`.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field
from inspect import get_annotations
from operator import attrgetter
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

__all__ = ["dataclass", "field"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True):
        """The class with what the standard decorator gives it: `__init__`, `__repr__`, `__eq__`, `__hash__` and so on."""
        return (lambda cls: _made(cls, frozen, slots, eq)) if cls is None else _made(cls, frozen, slots, eq)


_Spec = dict[str, tuple[Any, Any]]
"""By the name of a field its annotation and its default: MISSING where there is none, a `Field` where it is made anew for
each instance."""

_Method = Callable[..., Any]
_SPEC = "__values_spec__"


def _made(cls: type, frozen: bool, slots: bool, eq: bool) -> type:
    spec = _spec(cls)
    for name, (_, default) in spec.items():
        if isinstance(cls.__dict__.get(name), Field):
            delattr(cls, name)
            if default is not MISSING and not isinstance(default, Field):
                setattr(cls, name, default)
    cls = _slotted(cls, spec) if slots else cls
    names = tuple(spec)
    methods: dict[str, Any] = {"__init__": _lazy_init(cls, spec, frozen), "__repr__": _repr(names)}
    methods |= _comparing(names, frozen) if eq else {}
    methods |= _freezing(cls, names) if frozen else {}
    methods |= _stateful(names) if frozen and slots else {}
    own = {name: method for name, method in methods.items() if name not in cls.__dict__ or method is None}
    own |= {_SPEC: spec, "__match_args__": names, "__dataclass_fields__": _Fields(spec)}
    own["__dataclass_params__"] = SimpleNamespace(init=True, repr=True, eq=eq, order=False, frozen=frozen)
    for name, value in own.items():
        setattr(cls, name, value)
    return cls


def _spec(cls: type) -> _Spec:
    """The fields of the classes that it follows, then its own."""
    spec: _Spec = {}
    for base in reversed(cls.__mro__[1:]):
        spec |= base.__dict__.get(_SPEC, {})
    for name, note in get_annotations(cls).items():
        origin: Any = get_origin(note)
        if origin is not ClassVar and note is not ClassVar:
            default = cls.__dict__.get(name, MISSING)
            is_plain = isinstance(default, Field) and default.default_factory is MISSING
            spec[name] = note, default.default if is_plain else default
    return spec


def _slotted(cls: type, spec: _Spec) -> type:
    """The same class with slots for its fields: they can only be given when a class is made."""
    taken = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    inside = {name: value for name, value in cls.__dict__.items() if name not in (*spec, "__dict__", "__weakref__")}
    inside["__slots__"] = tuple(name for name in spec if name not in taken)
    made = type(cls)(cls.__name__, cls.__bases__, inside)
    made.__qualname__ = cls.__qualname__
    return made


def _lazy_init(cls: type, spec: _Spec, frozen: bool) -> _Method:
    """Compiles the real one at the first call, and takes its place."""

    init = "__init__"

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        made = _compiled_init(cls, spec, frozen)
        setattr(cls, init, made)
        made(self, *args, **given)

    return __init__


def _compiled_init(cls: type, spec: _Spec, frozen: bool) -> _Method:
    known: dict[str, Any] = {"_put": object.__setattr__, "_ANEW": MISSING}
    arguments, lines = ["self"], []
    for name, (_, default) in spec.items():
        value = name
        if isinstance(default, Field):
            known[f"_make_{name}"] = default.default_factory
            arguments.append(f"{name}=_ANEW")
            value = f"_make_{name}() if {name} is _ANEW else {name}"
        elif default is not MISSING:
            known[f"_default_{name}"] = default
            arguments.append(f"{name}=_default_{name}")
        else:
            arguments.append(name)
        slot = getattr(cls, name, None)
        if frozen and isinstance(slot, MemberDescriptorType):  # a quarter faster than to look the slot up each time
            known[f"_set_{name}"] = slot.__set__
            lines.append(f"  _set_{name}(self, {value})")
        else:
            lines.append(f"  _put(self, {name!r}, {value})" if frozen else f"  self.{name} = {value}")
    exec(f"def __init__({', '.join(arguments)}):\n" + ("\n".join(lines) or "  pass"), known)
    made: _Method = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {name: note for name, (note, _) in spec.items()} | {"return": None}
    return made


def _repr(names: tuple[str, ...]) -> _Method:
    def __repr__(self: Any) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({inside})"

    return __repr__


def _comparing(names: tuple[str, ...], frozen: bool) -> dict[str, Any]:
    values: _Method = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _freezing(cls: type, names: tuple[str, ...]) -> dict[str, _Method]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _stateful(names: tuple[str, ...]) -> dict[str, _Method]:
    """What pickling and copying need of an object that is frozen and has no `__dict__`."""

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": __getstate__, "__setstate__": __setstate__}


class _Fields:
    """`__dataclass_fields__`, for `fields`, `replace` and `asdict`: made when first asked for."""

    def __init__(self, spec: _Spec) -> None:
        self._spec = spec
        self._made: dict[str, Any] | None = None

    def __get__(self, one: object, cls: type) -> dict[str, Any]:
        if self._made is None:
            import dataclasses

            inside: dict[str, Any] = {"__annotations__": {name: note for name, (note, _) in self._spec.items()}}
            for name, (_, default) in self._spec.items():
                if isinstance(default, Field):
                    inside[name] = field(default_factory=default.default_factory)
                elif default is not MISSING:
                    inside[name] = field(default=default)
            bare: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(type(cls.__name__, (), inside))
            self._made = {one.name: one for one in dataclasses.fields(bare)}
        return self._made
