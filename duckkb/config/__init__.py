"""Configuration: config.yaml, ontology/**/*.yaml and the environment -> Settings, Ontology and Environment."""

from typing import TYPE_CHECKING, Any

from duckkb.config.environment import around, byte_count, environment, in_workflow, secret, wants_color
from duckkb.config.files import config_paths as paths
from duckkb.config.files import find_root
from duckkb.config.load import Loaded, load
from duckkb.config.sound import remember_schemas
from duckkb.config.stamp import Stamp, stamp
from duckkb.config.trust import Demands, accept, demands, is_trusted, trust_hash

if TYPE_CHECKING:
    from duckkb.config.show import normalised

__all__ = [
    "Demands",
    "Loaded",
    "Stamp",
    "accept",
    "around",
    "byte_count",
    "demands",
    "environment",
    "find_root",
    "in_workflow",
    "is_trusted",
    "load",
    "normalised",
    "paths",
    "remember_schemas",
    "secret",
    "stamp",
    "trust_hash",
    "wants_color",
]


def __getattr__(name: str) -> Any:
    """What few commands need is imported when they ask for it."""
    if name == "normalised":
        from duckkb.config.show import normalised

        return normalised
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
