"""The policies that duckkb comes with, one YAML file each. To add a policy, add a file."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from duckkb.ontology.model import Policy
from duckkb.ontology.policies import policy
from duckkb.ontology.yaml_source import read_yaml, root_section
from duckkb.types.errors import Finding


@lru_cache(maxsize=1)
def presets() -> Mapping[str, Policy]:
    """Return the policies of the package by name; `place` is the file.

    Raises ValueError for a file that is wrong.
    """
    from importlib.resources import files

    policies: dict[str, Policy] = {}
    for path in sorted(files(__name__).iterdir(), key=lambda path: path.name):
        if path.name.endswith(".yaml"):
            document = read_yaml(path.read_bytes(), f"presets/{path.name}")
            findings: list[Finding] = list(document.findings)
            root = root_section(document, "E_ONTOLOGY", findings)
            policies |= {name: policy(name, section) for name, section in root.each("policies")}
            if findings:
                raise ValueError(f"the preset is wrong: {findings[0]}")
    return policies


def find_policy(name: str, own: Mapping[str, Policy]) -> Policy | None:
    """Return the policy of this name or alias: the base's own first, then those of the package."""
    for policies in (own, presets()):
        match = policies.get(name) or _find_by_alias(name, policies.values())
        if match is not None:
            return match
    return None


def _find_by_alias(name: str, policies: Iterable[Policy]) -> Policy | None:
    return next((candidate for candidate in policies if name in candidate.aliases), None)
