"""Configuration: config.yaml, ontology/**/*.yaml and the environment -> Settings, Ontology and Environment."""

from duckkb.config.environment import around, environment, secret
from duckkb.config.files import find_root
from duckkb.config.load import Loaded, load
from duckkb.config.show import normalised
from duckkb.config.stamp import Stamp, stamp
from duckkb.config.trust import Demands, accept, demands, is_trusted, trust_hash

__all__ = [
    "Demands",
    "Loaded",
    "Stamp",
    "accept",
    "around",
    "demands",
    "environment",
    "find_root",
    "is_trusted",
    "load",
    "normalised",
    "secret",
    "stamp",
    "trust_hash",
]
