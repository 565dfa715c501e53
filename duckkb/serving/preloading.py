"""Loads what a server needs of its installation before it says that it is ready.

From then on the files may be replaced by another version, or be deleted, and the server keeps answering with
what it loaded.
"""

from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

import duckkb
from duckkb import installed
from duckkb.settings import NO_MODEL, Settings

ELSEWHERE = (
    "duckkb.__main__",
    "duckkb.cli",
    "duckkb.integrations",
    "duckkb.tables",
    "duckkb.postgres_url",  # imported lazily, as the two around it
    "duckkb.lanes.targets",  # imported for a published base, with its driver
    "duckkb.llm.providers.guarded_http",  # imported for a base that asks a service for vectors or chats
)
LIBRARIES = (
    "chardet",
    "git.cmd",
    "git.exc",
    "jsonschema",
    "jsonschema.exceptions",
    "jsonschema.validators",
    "jsonschema_rs",
    "numpy",
    "portalocker",
    "pyarrow.compute",
    "referencing",
)
"""Modules that others import on demand, except models and formats of documents, which a base may not have."""


def import_all(*, doors: bool = True) -> None:
    """Import every module that may answer a request, and what they load lazily, with those of `doors` too.

    Modules whose extra is not installed are left out. The version that is installed now is the one that runs.
    """
    installed.remember_running()
    elsewhere = ELSEWHERE if doors else (*ELSEWHERE, "duckkb.serving")
    modules = (module.name for module in walk_packages(duckkb.__path__, "duckkb.", onerror=lambda name: None))
    for name in modules:
        if not any(f"{name}.".startswith(f"{prefix}.") for prefix in elsewhere):
            _import(name)
    for name in LIBRARIES:
        _import(name)
    from duckkb.ontology.presets import presets

    presets()


def import_models(settings: Settings) -> None:
    """Import what the models of a base need."""
    if settings.embedding.base_url or settings.models:
        _import("duckkb.llm.providers.guarded_http")
    if settings.embedding.model != NO_MODEL and not settings.embedding.base_url:
        for name in ("onnxruntime", "sentencepiece"):
            _import(name)


def _import(name: str) -> None:
    with suppress(ImportError):
        import_module(name)
