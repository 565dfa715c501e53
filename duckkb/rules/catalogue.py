"""All rules in one list, and who is held to which."""

from collections.abc import Collection, Iterator

from duckkb.errors import Finding
from duckkb.rules import edges, files, records
from duckkb.rules.view import BaseView, IntegrityRule

RULES: tuple[IntegrityRule, ...] = (*files.RULES, *records.RULES, *edges.RULES)
AFTER_MERGE = tuple(rule for rule in RULES if rule.merged)
BEFORE_WRITE = tuple(rule for rule in RULES if rule.written)


def findings(view: BaseView, rules: Collection[IntegrityRule] = RULES) -> Iterator[Finding]:
    """Everything that breaks one of `rules` in what `view` looks at, type by type."""
    for kind in view.kinds:
        for rule in rules:
            yield from rule.find(view, kind)
