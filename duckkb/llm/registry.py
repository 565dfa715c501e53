"""The registry of chat models: plain data by name, read into settings.

A row is `global.models.NAME` of config.yaml, or a dictionary of a program without a knowledge base.
"""

import re
from collections.abc import Mapping
from typing import Any, get_args

from msgspec import Struct

from duckkb.errors import Finding, UsageError
from duckkb.ontology.names import suggest_known_names
from duckkb.ontology.rules import Choice, Flag, Names, Number, Rule, Text, Url, VariableName, Whole, show_value
from duckkb.ontology.source import Document, Section, root_section
from duckkb.settings import ChatModelSettings, ProviderSettings, Reasoning, Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}")
_REMEDY = "providers: [{base_url: URL, model: NAME, api_key_env: VARIABLE}]"


class RowKey(Struct, frozen=True):
    """A key of a row, or of a provider in it; where it is absent, the default of its settings holds."""

    name: str
    rule: Rule
    meaning: str


ROW_KEYS = (
    RowKey("json_mode", Flag(), "Whether it supports JSON output; if false, requests for JSON are refused without a call."),
    RowKey("tools", Flag(), "Whether it calls tools; if false, requests with tools are refused."),
    RowKey(
        "reasoning", Choice(get_args(Reasoning)),
        "Whether it thinks before it speaks: not at all (none), with the effort that is asked for (native), where a provider's"
        " reasoning_body is sent (mapped: medium and high; low is off), or always (fixed).",
    ),
    RowKey("context_tokens", Whole(512, 1 << 24), "What it reads at once, question and answer together."),
)  # fmt: skip
PROVIDER_KEYS = (
    RowKey("base_url", Url(), "/chat/completions below this address is asked, after `duckkb trust`."),
    RowKey("model", Text(), "The model as this provider calls it; where it is not set, NAME."),
    RowKey("api_key_env", VariableName(), "The environment variable that holds the provider's key."),
    RowKey("timeout_s", Number(0.1, 3_600), "How long one answer may take, in seconds."),
    RowKey("stream_usage", Flag(), "Whether it may be asked to count tokens (stream_options); a few refuse that."),
    RowKey("returns_reasoning", Flag(), "Whether it wants to read again what the model thought, as a few do between calls of tools."),
    RowKey("reasoning_body", Names(), "What a request has besides where reasoning is asked of a `mapped` model, such as {enable_thinking: true}."),
    RowKey("reasoning_off", Names(), "What it has instead where the effort is low, for which a `mapped` model does not think; unset: reasoning_body with each true as false."),
)  # fmt: skip


def read_registry(rows: Mapping[str, Any]) -> dict[str, ChatModelSettings]:
    """Read chat models from plain data: `{NAME: {"providers": [{"base_url": URL, ...}], "json_mode": True, ...}}`.

    Raises `errors.UsageError` (E_CONFIG), with everything that is wrong as its findings.

    >>> read_registry({"small": {"providers": [{"base_url": "http://127.0.0.1:8080/v1"}]}})["small"].providers[0].model
    'small'
    """
    findings: list[Finding] = []
    models = read_models(root_section(Document("registry", rows), "E_CONFIG", findings), {})
    if findings:
        places = [f"{finding.field} {finding.message}" for finding in findings]
        raise UsageError(f"the registry of models is wrong: {places[0]}", "E_CONFIG", _REMEDY, findings=tuple(findings))
    return models


def row_of(settings: Settings, name: str | None) -> ChatModelSettings:
    """Return the row of a name; None: that of `global.ask.model`, or the only one.

    Raises `errors.UsageError` (E_NO_MODEL).
    """
    models, model_name = settings.models, name or settings.ask.model
    if model_name is None and len(models) == 1:
        return next(iter(models.values()))
    if model_name in models:
        return models[str(model_name)]
    if not models:
        raise UsageError("config.yaml has no chat model.", "E_NO_MODEL", f"add global.models: {{NAME: {{{_REMEDY}}}}}")
    if model_name is None:
        message, remedy = (
            f"There are {len(models)} chat models, and none is chosen.",
            f"set global.ask.model: {next(iter(models))}",
        )
        raise UsageError(message, "E_NO_MODEL", remedy)
    raise UsageError(f"No chat model {show_value(model_name)}.", "E_NO_MODEL", suggest_known_names(model_name, models))


def read_models(section: Section, origins: dict[str, str]) -> dict[str, ChatModelSettings]:
    """Read the rows of a section by name; note every problem in the section.

    The place of each given value is added to `origins`.
    """
    names = [name for name in section.value if _is_name(section, name)]
    return {name: _read_model(name, section.sub(name), origins) for name in names}


def _is_name(section: Section, name: str) -> bool:
    if NAME.fullmatch(name):
        return True
    section.problem(
        f"{show_value(name)} cannot name a model", name, remedy="letters, digits and . _ : / - after the first one"
    )
    return False


def _read_model(name: str, row: Section, origins: dict[str, str]) -> ChatModelSettings:
    options = _read_keys(row, ROW_KEYS, f"global.models.{name}", origins, ("providers",))
    providers = []
    for index, value in row.items("providers"):
        if isinstance(value, dict):
            entry = row.entry("providers", index, value)
            provider_options = _read_keys(entry, PROVIDER_KEYS, f"global.models.{name}.providers.{index}", origins)
            providers.append(ProviderSettings(**{"model": name, **provider_options}))
            if options.get("reasoning") == "mapped" and not provider_options.get("reasoning_body"):
                entry.problem(
                    "does not define how to request reasoning", remedy="reasoning_body: {enable_thinking: true}"
                )
        else:
            row.problem(f"must be a mapping, is {show_value(value)}", "providers", index, remedy=_REMEDY)
    if not row.value.get("providers"):
        row.problem("needs at least one provider", remedy=_REMEDY)
    return ChatModelSettings(name, tuple(providers), **options)


def _read_keys(
    section: Section, keys: tuple[RowKey, ...], at: str, origins: dict[str, str], more: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Read the keys that are present and valid, by name."""
    absent = [key.name for key in keys if key.name == "api_key_env" and section.value.get(key.name) is None]
    known_values = section.read({key.name: key.rule for key in keys if key.name not in absent}, (*more, *absent))
    values = {name: value for name, value in known_values.items() if value is not None}
    origins.update({f"{at}.{name}": section.place(name) for name in values})
    return {name: float(value) if name == "timeout_s" else value for name, value in values.items()}
