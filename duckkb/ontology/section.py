"""A cursor over one mapping of a document: reads values by rule and notes every problem with its place."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from duckkb.errors import Finding
from duckkb.ontology.names import name_known, nearest
from duckkb.ontology.rules import Rule, shown
from duckkb.ontology.source import MAX_FINDINGS, Document, pointer
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """One mapping at a JSON pointer. Problems go to `found`, which all sections of one reading share."""

    document: Document
    at: str
    value: Mapping[str, Any]
    code: str
    found: list[Finding]

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def inside(self, *keys: str | int) -> str:
        return self.at + pointer(*keys)

    def place(self, *keys: str | int) -> str:
        return self.document.place(self.inside(*keys))

    def problem(self, message: str, *keys: str | int, remedy: str = "") -> None:
        """Note what is wrong with the value at `keys`, or with the section itself."""
        self.found.append(self.document.finding(self.code, self.inside(*keys), message, remedy))

    def refuse_unknown(self, known: Collection[str], elsewhere: Mapping[str, str] | None = None) -> None:
        """Note every key that is not known, with the nearest one that is; `elsewhere` maps a key to where it belongs."""
        for key in self.value:
            if key in known:
                continue
            if len(self.found) >= MAX_FINDINGS:
                return  # nobody mends more at once, and looking for the nearest key takes its time
            if nearest(key, known) is None and elsewhere and key in elsewhere:
                remedy = f"did you mean `{elsewhere[key]}`?"
            else:
                remedy = name_known(key, known)
            self.problem(f"unknown key {shown(key)}", key, remedy=remedy)

    def sub(self, key: str) -> "Section":
        """The mapping under a key; an empty one where it is absent, null or, with a finding, no mapping."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, dict):
            self.problem(f"must be a mapping, is {shown(value)}", key)
        return self._section(self.inside(key), value if isinstance(value, dict) else {})

    def each(self, key: str) -> Iterator[tuple[str, "Section"]]:
        """The mappings under a key by name, where each value must be a mapping."""
        group = self.sub(key)
        for name in group.value:
            yield name, group.sub(name)

    def get(self, key: str, rule: Rule, default: Any) -> Any:
        """The value under a key where it is given and right, else the default (with a finding if it is wrong)."""
        if key not in self.value:
            return default
        problem = rule.problem(self.value[key])
        if problem:
            self.problem(problem, key)
            return default
        return self.value[key]

    def names(self, key: str) -> list[tuple[str, str]]:
        """Names under a key, which holds one text or a list of them, each with its pointer; no name twice."""
        value = self.value.get(key)
        many = value if isinstance(value, list) else [value]
        found: dict[str, str] = {}
        for index, name in enumerate(many):
            keys = (key, index) if isinstance(value, list) else (key,)
            if not isinstance(name, str) or not name:
                self.problem(f"must be a name, is {shown(name)}", *keys)
            elif name in found:
                self.problem(f"names {shown(name)} twice", *keys)
            else:
                found[name] = self.inside(*keys)
        if not many:
            self.problem("must not be empty", key)
        return list(found.items())

    def items(self, key: str) -> list[tuple[int, Any]]:
        """The items of a list under a key, numbered; none where it is absent or, with a finding, no list."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, list):
            self.problem(f"must be a list, is {shown(value)}", key)
        return list(enumerate(value)) if isinstance(value, list) else []

    def entry(self, key: str, index: int, value: Mapping[str, Any]) -> "Section":
        """The mapping that is one item of the list under a key."""
        return self._section(self.inside(key, index), value)

    def _section(self, at: str, value: Mapping[str, Any]) -> "Section":
        return Section(self.document, at, value, self.code, self.found)


def root_section(document: Document, code: str, found: list[Finding]) -> Section:
    """The whole document as a section."""
    return Section(document, "", document.value, code, found)
