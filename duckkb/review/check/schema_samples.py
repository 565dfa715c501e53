"""Sample values at the borders of two schemas, which one of them accepts and the other may refuse.

They are drawn from the schemas' own constants, so that equal schemas give equal values. Schemas are in normal
form (`normal_schema`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from duckkb.ontology.kinds import ANY
from duckkb.ontology.reasons import compile_rule
from duckkb.review.check.normal_schema import Schema, element_rule, member_rule, normalize_value

Sides = tuple[Schema, Schema]
"""The same part of the older and of the newer schema."""

_MOST_VALUES, _DEEPEST, _LONGEST = 60, 6, 2_000
_TEXTS = ("a", "", "A", "0", "a1", "ab-1", "é 中", "2026-01-02", "2026-01-02T03:04:05Z", "03:04:05Z", "P1D", "a@b.example",
          "b.example", "192.0.2.1", "2001:db8::1", "https://b.example/a", "/a", "0/a", "a*",
          "123e4567-e89b-12d3-a456-426614174000")  # fmt: skip
_NUMBERS = (0, 1, -1, 0.5, 2, 1_000)
_STRANGER = "another"
_ORDER = ((True, False), (False, True), (True, True), (False, False))
"""The order of values, by whether the newer and the older schema accept them."""


class Samples:
    """A small set of values for a whole record, each of which differs from a typical one at one place."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._sides = old, new
        self._definitions = [side.get("$defs", {}) if isinstance(side, Mapping) else {} for side in self._sides]
        self._known: dict[str, Any] = {}

    @cached_property
    def records(self) -> list[Mapping[str, Any]]:
        return [value for value in self._iter_objects(self._sides, 0) if isinstance(value, Mapping)]

    def _sample_values(self, sides: Sides, depth: int) -> list[Any]:
        """Return values for a part, a typical one first."""
        if depth > _DEEPEST:
            return ["a", 0, None, {}, []]
        candidates: list[Any] = []
        rules = [*_iter_rules(sides)]
        kinds = {kind for rule in rules[:2] for kind in rule.get("type", ANY)}
        candidates += [value for rule in rules for value in rule.get("enum", ())]
        candidates += _sample_texts(rules) if "string" in kinds else []
        candidates += _sample_numbers(rules) if kinds & {"integer", "number"} else []
        candidates += [True, False] if "boolean" in kinds else []
        candidates += islice(self._iter_arrays(sides, depth), 4 * _MOST_VALUES) if "array" in kinds else ()
        candidates += islice(self._iter_objects(sides, depth), 4 * _MOST_VALUES) if "object" in kinds else ()
        candidates += [None] if "null" in kinds else []
        candidates += ["a", 0, 0.5, True, None, [], {}]  # of the wrong type, for schemas without a type
        distinct = list({f"{type(value).__name__}{normalize_value(value)}": value for value in candidates}.values())
        judges = [self._judge(number, side) for number, side in enumerate(sides)]
        verdicts = [(judges[1](value), judges[0](value)) for value in distinct]
        usual = max(range(len(distinct)), key=lambda number: verdicts[number])
        # Then a value that the newer one alone takes, which tells the two apart.
        order = sorted(range(len(distinct)), key=lambda number: (number != usual, _ORDER.index(verdicts[number])))
        return [distinct[number] for number in order][: 4 * _MOST_VALUES]

    def _judge(self, number: int, schema: Schema) -> Callable[[Any], bool]:
        if not isinstance(schema, Mapping):
            return lambda value: False
        key = f"{number}{normalize_value(schema)}"
        if key not in self._known:
            self._known[key] = compile_rule({**schema, "$defs": self._definitions[number]})
        validator = self._known[key]
        return lambda value: bool(validator.is_valid(value))

    def _iter_arrays(self, sides: Sides, depth: int) -> Iterator[list[Any]]:
        rules = [*_iter_rules(sides)]
        for rule in rules:
            contained_values = (
                self._sample_values((rule["contains"], rule["contains"]), depth + 1)[:3] if "contains" in rule else []
            )
            counts = {1, *_list_borders([rule], ("minContains", "maxContains"))}
            yield from (
                [value] * count for value in contained_values for count in sorted(counts) if 0 <= count <= _LONGEST
            )
        first = max((len(rule.get("prefixItems", ())) for rule in rules), default=0)
        places = [[self._merge_values(rules, element_rule, place, depth)] for place in range(first + 1)]
        usual = [values[0][0] for values in places]
        sizes = {0, 1, first, first + 1, first + 2, *_list_borders(rules, ("minItems", "maxItems"))}
        for size in sorted(size for size in sizes if 0 <= size <= _LONGEST):
            yield [*usual[:first], *[usual[first]] * max(0, size - first)][:size]
        extra_values = places[first][0]
        yield [*usual[:first], *extra_values[:3]]
        for place, (values,) in enumerate(places):
            for value in values:
                for size in {
                    place + 1,
                    *(size for size in _list_borders(rules, ("minItems",)) if place < size <= _LONGEST),
                }:
                    array = [*usual[:first], *[usual[first]] * (size - first)]
                    yield [*array[:place], value, *array[place + 1 :]]

    def _iter_objects(self, sides: Sides, depth: int) -> Iterator[Mapping[str, Any]]:
        rules = [*_iter_rules(sides)]
        names = sorted({name for rule in rules for name in (*rule.get("properties", ()), *_iter_needed_names(rule))})
        values = {name: self._merge_values(rules, member_rule, name, depth) for name in names}
        for required_names in _dedupe_sets(
            [*({*side.get("required", ())} for side in sides if side), *_collect_required_sets(rules)]
        ):
            usual = {name: values[name][0] for name in sorted(required_names)}
            yield usual
            yield from (_drop_field(usual, name) for name in usual)
            for rank in range(
                max(map(len, values.values()), default=0)
            ):  # some of each field, where not all are checked
                yield from ({**usual, name: values[name][rank]} for name in names if rank < len(values[name]))
            extra_values = self._merge_values(rules, member_rule, _STRANGER, depth)
            yield from ({**usual, _STRANGER: value} for value in extra_values[:_MOST_VALUES])
            for size in _list_borders(rules, ("minProperties", "maxProperties")):
                if len(usual) < size <= _LONGEST:
                    yield {**usual, **{f"{_STRANGER}{number}": extra_values[0] for number in range(size - len(usual))}}
            yield {name: values[name][0] for name in names}

    def _merge_values(self, rules: Sequence[Mapping[str, Any]], rule_at: Any, place: Any, depth: int) -> list[Any]:
        """Return values for a member or an element: from both sides' own rules, then from parts of them."""
        parts = [rule_at(rule, place) for rule in rules]
        first = parts[0] if parts else {}
        last = parts[1] if len(parts) > 1 else first
        values = self._sample_values((first, last), depth + 1)
        for part in parts[2:]:
            values = [*values, *self._sample_values((part, part), depth + 1)[:_MOST_VALUES]] if part else values
        return values


def _iter_rules(sides: Sides) -> Iterator[Mapping[str, Any]]:
    """Yield both sides, then the schemas that they combine at the same place."""
    yield from (side if isinstance(side, Mapping) else {} for side in sides)
    pending = [part for side in sides for part in _list_subschemas(side)]
    for part in pending[:_MOST_VALUES]:
        if isinstance(part, Mapping):
            yield part
            pending += _list_subschemas(part)[:_MOST_VALUES]


def _list_subschemas(schema: Schema) -> list[Schema]:
    if not isinstance(schema, Mapping):
        return []
    several = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key, ())]
    return [*several, *(schema[key] for key in ("not", "if", "then", "else") if key in schema)]


def _iter_needed_names(rule: Mapping[str, Any]) -> Iterator[str]:
    yield from rule.get("required", ())
    for name, names in rule.get("dependentRequired", {}).items():
        yield from (name, *names)
    yield from rule.get("dependentSchemas", ())
    yield from (pattern.strip("^$") for pattern in rule.get("patternProperties", ()))


def _collect_required_sets(rules: Sequence[Mapping[str, Any]]) -> list[set[str]]:
    """Return the required names of each combined part, together with those of the whole."""
    whole = {name for rule in rules[:2] for name in rule.get("required", ())}
    return [whole | {*rule.get("required", ())} for rule in rules[2:]]


def _dedupe_sets(sets: Iterable[set[str]]) -> list[set[str]]:
    return [set(names) for names in sorted({tuple(sorted(name_set)) for name_set in sets} or {()})]


def _drop_field(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def _list_borders(rules: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[Any]:
    """Return the limits that schemas set, and the values just beside them."""
    limits = sorted({rule[key] for rule in rules for key in keys if key in rule})
    return [limit + step for limit in limits for step in (-1, 0, 1)]


def _sample_texts(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    sizes = [size for size in _list_borders(rules, ("minLength", "maxLength")) if 0 <= size <= _LONGEST]
    return [*_TEXTS, *(letter * int(size) for size in sizes for letter in ("a", "A", "0"))]


def _sample_numbers(rules: Sequence[Mapping[str, Any]]) -> list[float]:
    limits = _list_borders(rules, ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
    steps = [rule["multipleOf"] for rule in rules if "multipleOf" in rule]
    near = [limit + half for limit in limits for half in (-0.5, 0.5)]
    return [*_NUMBERS, *limits, *near, *(step * factor for step in steps for factor in (1, 2, 3))]
