"""Values at the borders of two schemas: what one of them takes and the other may refuse. Drawn from the schemas' own constants,
so that the same schemas give the same values. Schemas are in normal form (`normal_schema`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from duckkb.ontology.kinds import ANY
from duckkb.ontology.reasons import compiled
from duckkb.review.check.normal_schema import Schema, as_text, element_rule, member_rule

Sides = tuple[Schema, Schema]
"""The same part of the older and of the newer schema."""

_MOST_VALUES, _DEEPEST, _LONGEST = 60, 6, 2_000
_TEXTS = ("a", "", "A", "0", "a1", "ab-1", "é 中", "2026-01-02", "2026-01-02T03:04:05Z", "03:04:05Z", "P1D", "a@b.example",
          "b.example", "192.0.2.1", "2001:db8::1", "https://b.example/a", "/a", "0/a", "a*",
          "123e4567-e89b-12d3-a456-426614174000")  # fmt: skip
_NUMBERS = (0, 1, -1, 0.5, 2, 1_000)
_STRANGER = "another"
_ORDER = ((True, False), (False, True), (True, True), (False, False))
"""Of values by whether the newer and the older schema take them."""


class Samples:
    """Values for a whole record: few, each differing from a usual one at one place."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._sides = old, new
        self._definitions = [side.get("$defs", {}) if isinstance(side, Mapping) else {} for side in self._sides]
        self._known: dict[str, Any] = {}

    @cached_property
    def records(self) -> list[Mapping[str, Any]]:
        return [value for value in self._objects(self._sides, 0) if isinstance(value, Mapping)]

    def _values(self, sides: Sides, depth: int) -> list[Any]:
        """Values for a part, first a usual one."""
        if depth > _DEEPEST:
            return ["a", 0, None, {}, []]
        found: list[Any] = []
        rules = [*_rules(sides)]
        kinds = {kind for rule in rules[:2] for kind in rule.get("type", ANY)}
        found += [value for rule in rules for value in rule.get("enum", ())]
        found += _texts(rules) if "string" in kinds else []
        found += _numbers(rules) if kinds & {"integer", "number"} else []
        found += [True, False] if "boolean" in kinds else []
        found += islice(self._arrays(sides, depth), 4 * _MOST_VALUES) if "array" in kinds else ()
        found += islice(self._objects(sides, depth), 4 * _MOST_VALUES) if "object" in kinds else ()
        found += [None] if "null" in kinds else []
        found += ["a", 0, 0.5, True, None, [], {}]  # of the wrong type, for whoever does not ask for one
        distinct = list({f"{type(value).__name__}{as_text(value)}": value for value in found}.values())
        judges = [self._judge(number, side) for number, side in enumerate(sides)]
        taken = [(judges[1](value), judges[0](value)) for value in distinct]
        usual = max(range(len(distinct)), key=lambda number: taken[number])
        # Then what the newer one alone takes: it tells the two apart.
        order = sorted(range(len(distinct)), key=lambda number: (number != usual, _ORDER.index(taken[number])))
        return [distinct[number] for number in order][: 4 * _MOST_VALUES]

    def _judge(self, number: int, schema: Schema) -> Callable[[Any], bool]:
        if not isinstance(schema, Mapping):
            return lambda value: False
        key = f"{number}{as_text(schema)}"
        if key not in self._known:
            self._known[key] = compiled({**schema, "$defs": self._definitions[number]})
        validator = self._known[key]
        return lambda value: bool(validator.is_valid(value))

    def _arrays(self, sides: Sides, depth: int) -> Iterator[list[Any]]:
        rules = [*_rules(sides)]
        for rule in rules:
            wanted = self._values((rule["contains"], rule["contains"]), depth + 1)[:3] if "contains" in rule else []
            counts = {1, *_borders([rule], ("minContains", "maxContains"))}
            yield from ([value] * count for value in wanted for count in sorted(counts) if 0 <= count <= _LONGEST)
        first = max((len(rule.get("prefixItems", ())) for rule in rules), default=0)
        places = [[self._merged(rules, element_rule, place, depth)] for place in range(first + 1)]
        usual = [values[0][0] for values in places]
        sizes = {0, 1, first, first + 1, first + 2, *_borders(rules, ("minItems", "maxItems"))}
        for size in sorted(size for size in sizes if 0 <= size <= _LONGEST):
            yield [*usual[:first], *[usual[first]] * max(0, size - first)][:size]
        others = places[first][0]
        yield [*usual[:first], *others[:3]]
        for place, (values,) in enumerate(places):
            for value in values:
                for size in {place + 1, *(size for size in _borders(rules, ("minItems",)) if place < size <= _LONGEST)}:
                    made = [*usual[:first], *[usual[first]] * (size - first)]
                    yield [*made[:place], value, *made[place + 1 :]]

    def _objects(self, sides: Sides, depth: int) -> Iterator[Mapping[str, Any]]:
        rules = [*_rules(sides)]
        names = sorted({name for rule in rules for name in (*rule.get("properties", ()), *_needed(rule))})
        values = {name: self._merged(rules, member_rule, name, depth) for name in names}
        for required in _distinct_sets(
            [*({*side.get("required", ())} for side in sides if side), *_required_in(rules)]
        ):
            usual = {name: values[name][0] for name in sorted(required)}
            yield usual
            yield from (_without(usual, name) for name in usual)
            for rank in range(
                max(map(len, values.values()), default=0)
            ):  # of each field some, where not all are looked at
                yield from ({**usual, name: values[name][rank]} for name in names if rank < len(values[name]))
            others = self._merged(rules, member_rule, _STRANGER, depth)
            yield from ({**usual, _STRANGER: value} for value in others[:_MOST_VALUES])
            for size in _borders(rules, ("minProperties", "maxProperties")):
                if len(usual) < size <= _LONGEST:
                    yield {**usual, **{f"{_STRANGER}{number}": others[0] for number in range(size - len(usual))}}
            yield {name: values[name][0] for name in names}

    def _merged(self, rules: Sequence[Mapping[str, Any]], rule_at: Any, place: Any, depth: int) -> list[Any]:
        """Values for a member or an element: of what both sides themselves say, then of what parts of them say."""
        parts = [rule_at(rule, place) for rule in rules]
        first = parts[0] if parts else {}
        last = parts[1] if len(parts) > 1 else first
        found = self._values((first, last), depth + 1)
        for part in parts[2:]:
            found = [*found, *self._values((part, part), depth + 1)[:_MOST_VALUES]] if part else found
        return found


def _rules(sides: Sides) -> Iterator[Mapping[str, Any]]:
    """Both sides, then the schemas that they combine at the same place."""
    yield from (side if isinstance(side, Mapping) else {} for side in sides)
    pending = [part for side in sides for part in _combined(side)]
    for part in pending[:_MOST_VALUES]:
        if isinstance(part, Mapping):
            yield part
            pending += _combined(part)[:_MOST_VALUES]


def _combined(schema: Schema) -> list[Schema]:
    if not isinstance(schema, Mapping):
        return []
    several = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key, ())]
    return [*several, *(schema[key] for key in ("not", "if", "then", "else") if key in schema)]


def _needed(rule: Mapping[str, Any]) -> Iterator[str]:
    yield from rule.get("required", ())
    for name, names in rule.get("dependentRequired", {}).items():
        yield from (name, *names)
    yield from rule.get("dependentSchemas", ())
    yield from (pattern.strip("^$") for pattern in rule.get("patternProperties", ()))


def _required_in(rules: Sequence[Mapping[str, Any]]) -> list[set[str]]:
    """With each part's own beside what the whole asks for."""
    whole = {name for rule in rules[:2] for name in rule.get("required", ())}
    return [whole | {*rule.get("required", ())} for rule in rules[2:]]


def _distinct_sets(sets: Iterable[set[str]]) -> list[set[str]]:
    return [set(names) for names in sorted({tuple(sorted(one)) for one in sets} or {()})]


def _without(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def _borders(rules: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[Any]:
    """The limits that schemas set, and what lies just beside them."""
    limits = sorted({rule[key] for rule in rules for key in keys if key in rule})
    return [limit + step for limit in limits for step in (-1, 0, 1)]


def _texts(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    sizes = [size for size in _borders(rules, ("minLength", "maxLength")) if 0 <= size <= _LONGEST]
    return [*_TEXTS, *(letter * int(size) for size in sizes for letter in ("a", "A", "0"))]


def _numbers(rules: Sequence[Mapping[str, Any]]) -> list[float]:
    limits = _borders(rules, ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
    steps = [rule["multipleOf"] for rule in rules if "multipleOf" in rule]
    near = [limit + half for limit in limits for half in (-0.5, 0.5)]
    return [*_NUMBERS, *limits, *near, *(step * factor for step in steps for factor in (1, 2, 3))]
