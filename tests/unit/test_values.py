"""The decorator that compiles late makes the same classes as the standard library's."""

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

import duckkb
from duckkb import values


def in_two_ways(body: dict[str, Any], bases: tuple[type, ...] = (), **options: bool) -> tuple[type, type]:
    def bare() -> dict[str, Any]:
        return {**copy.copy(body), "__module__": __name__, "__qualname__": "One"}

    return values.dataclass(**options)(type("One", bases, bare())), dataclasses.dataclass(**options)(
        type("One", bases, bare())
    )


def parameters(one: type) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(one).parameters.values()
    return [(parameter.name, parameter.kind, parameter.annotation) for parameter in found]


FIELDS = {
    "__annotations__": {"a": int, "b": str, "c": "list[int]", "d": ClassVar[int]},
    "__doc__": "One.",
    "b": "b",
    "c": values.field(default_factory=list),
    "d": 4,
}
OPTIONS = [
    {"frozen": True, "slots": True},
    {"frozen": True},
    {"slots": True},
    {},
    {"eq": False},
    {"frozen": True, "eq": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_class_is_as_the_standard_library_makes_it(options: dict[str, bool]) -> None:
    ours, theirs = in_two_ways(FIELDS, **options)
    for given in [(1,), (1, "x"), (1, "x", [3])]:
        one, other = ours(*given), theirs(*given)
        assert repr(one) == repr(other)
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert (one == ours(*given)) == (other == theirs(*given))
        assert (one == ours(2)) == (other == theirs(2)) is False
        assert one != other
        assert repr(dataclasses.replace(one, a=7)) == repr(dataclasses.replace(other, a=7))
        assert hasattr(one, "__dict__") == hasattr(other, "__dict__")
        assert repr(copy.deepcopy(one)) == repr(one)
    assert parameters(ours) == parameters(theirs)
    assert ours.__match_args__ == theirs.__match_args__
    assert ours(1).c is not ours(1).c
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert ours.d == theirs.d == 4
    assert [field.name for field in dataclasses.fields(ours)] == ["a", "b", "c"]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_refused_is_refused_alike(options: dict[str, bool]) -> None:
    for given in [((), {}), ((1, 2, 3, 4), {}), ((1,), {"e": 5}), ((1,), {"a": 5})]:
        said = []
        for one in in_two_ways(FIELDS, **options):
            with pytest.raises(TypeError) as caught:
                one(*given[0], **given[1])
            said.append(str(caught.value))
        assert said[0] == said[1]
    if options.get("frozen"):
        for one in in_two_ways(FIELDS, **options):
            made = one(1)
            with pytest.raises(dataclasses.FrozenInstanceError):
                made.a = 2
            with pytest.raises(dataclasses.FrozenInstanceError):
                del made.a
            assert made.a == 1


def test_a_frozen_value_is_hashed_by_its_fields() -> None:
    ours, _ = in_two_ways({"__annotations__": {"a": int, "b": str}}, frozen=True, slots=True)
    assert len({ours(1, "x"), ours(1, "x"), ours(2, "x")}) == 2
    single, _ = in_two_ways({"__annotations__": {"a": str}}, frozen=True)
    assert {single("x"): 1}[single("x")] == 1
    empty, _ = in_two_ways({}, frozen=True, slots=True)
    assert empty() == empty()


@values.dataclass(frozen=True, slots=True)
class Kept:
    a: int
    b: tuple[int, ...] = ()


def test_a_frozen_value_with_slots_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, (2,)))) == Kept(1, (2,))


def test_fields_and_defaults_are_inherited() -> None:
    base = {"__annotations__": {"a": int, "b": str}, "b": "base"}
    own = {"__annotations__": {"b": str, "c": int}, "b": "own", "c": 3}
    said = []
    for make in (values.dataclass, dataclasses.dataclass):
        first = make(eq=False)(type("First", (Exception,), {**base, "__qualname__": "First"}))
        second = make(eq=False)(type("Second", (first,), {**own, "__qualname__": "Second"}))
        said.append((repr(second(1)), repr(second(1, "x", 4)), repr(first(1)), parameters(second)))
    assert said[0] == said[1]


def every_class() -> Iterator[type]:
    for found in pkgutil.walk_packages(duckkb.__path__, "duckkb."):
        if found.name == "duckkb.__main__" or ".providers.onnx_graph" in found.name:
            continue
        if found.name == "duckkb.integrations.llamaindex":  # its library is large and seldom installed
            continue
        module = importlib.import_module(found.name)
        yield from (one for one in vars(module).values() if isinstance(one, type) and one.__module__ == found.name)


@pytest.mark.long
def test_every_value_class_of_duckkb_is_one_to_the_standard_library() -> None:
    seen = 0
    for one in every_class():
        if "__values_spec__" in vars(one):
            names = [field.name for field in dataclasses.fields(one)]
            assert tuple(names) == one.__match_args__
            seen += 1
    assert seen > 100
