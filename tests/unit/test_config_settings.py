"""config.yaml -> settings: defaults, ranges, origins, secrets, and every problem at once with its line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from docs.example import render
from duckkb import config
from duckkb.config.config_files import normalize_config
from duckkb.config.setting_keys import KEYS, SECTIONS
from duckkb.types.errors import Finding, OntologyError, StateError
from duckkb.types.settings import (
    ArchSettings,
    AskSettings,
    ChatModelSettings,
    EmbeddingSettings,
    Environment,
    ExpandSettings,
    Expansion,
    Fusion,
    ProviderSettings,
    RerankSettings,
    Settings,
    Shrink,
    VectorSettings,
)

NOTE = "nodes:\n  Note: {identity: id, schema: {properties: {id: {type: string}}}}\n"
ENV = Environment()
EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def base(root: Path, text: str | bytes, **files: str) -> Path:
    """A base folder with this config.yaml, and files under ontology/ by name without `.yaml`."""
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    for name, content in files.items():
        (root / "ontology").mkdir(exist_ok=True)
        (root / "ontology" / f"{name}.yaml").write_text(content, "utf-8")
    return root


def refusal(root: Path) -> OntologyError:
    with pytest.raises(OntologyError) as caught:
        config.load(root, ENV)
    return caught.value


def refused(tmp_path: Path, text: str) -> list[Finding]:
    return list(refusal(base(tmp_path / "kb", text)).findings)


def plain(settings: Settings) -> Settings:
    """Settings without their origins."""
    return Settings(**{name: getattr(settings, name) for name in Settings.__struct_fields__ if name != "origins"})


def test_dk_02_an_empty_configuration_has_the_defaults(tmp_path: Path) -> None:
    settings = config.load(base(tmp_path, ""), ENV).settings
    assert plain(settings) == Settings()
    assert (settings.chunk_size, settings.tokenizer, settings.embedding.model) == (
        800,
        "jieba",
        "multilingual-e5-small",
    )
    assert set(settings.origins.values()) == {"default"}


def test_dk_01_the_seeds_own_shape_loads(tmp_path: Path) -> None:
    text = """\
global:
  chunk_size: 400
  embedding_model: none
  tokenizer: jieba
nodes:
  Character:
    table: characters
    identity: [name]
    schema:
      type: object
      properties: {name: {type: string}, description: {type: string}}
      required: [name]
    search: {full_text: [name, description], vectors: [description]}
edges:
  knows:
    label: knows
    from: Character
    to: Character
    schema: {type: object, properties: {since: {type: integer}}}
"""
    loaded = config.load(base(tmp_path, text), ENV)
    assert (loaded.settings.chunk_size, loaded.settings.embedding.model) == (400, "none")
    assert loaded.settings.origins["global.chunk_size"] == "config.yaml:2"
    assert [kind.table for kind in loaded.ontology] == ["characters", "knows"]


def test_every_setting_reaches_its_place(tmp_path: Path) -> None:
    text = """\
global:
  chunk_size: 100
  tokenizer: plain
  language: german
  fold_chinese: simplified
  word_forms: all
  embedding_model: bge-m3
  embedding:
    {base_url: "https://models.example/v1", api_key_env: MODEL_KEY, dimensions: 1024, batch_size: 8, timeout_s: 5,
     max_retries: 0, symmetric: true, mode: int8, concurrency: 2, price_per_million_tokens: 20}
  fusion: {method: minmax, k: 10, weight: 1, gate: 0.2}
  expansion: {method: feedback, weight: 0.5, hits: 2}
  rerank:
    {method: http, model: judge, base_url: "http://localhost:1/v1", api_key_env: JUDGE_KEY, timeout_ms: 7, max_candidates: 5,
     context_tokens: 600, concurrency: 2, queue_limit: 3, drop_policy: wait, dedupe: "off"}
  expand:
    {method: chat, model: writer, base_url: "http://localhost:2", api_key_env: WRITER_KEY, timeout_ms: 8, context_tokens: 1700}
  models:
    fast:
      providers:
      - {base_url: "http://localhost:3/v1", model: f-1, api_key_env: FAST_KEY, timeout_s: 7, stream_usage: false,
         returns_reasoning: true, reasoning_body: {thinking: {type: enabled}}}
      - {base_url: "https://models.example/v1", reasoning_body: {think: true}}
      json_mode: false
      tools: false
      reasoning: mapped
      context_tokens: 600
    slow: {providers: [{model: s}]}
  ask: {model: slow, budget: 300}
  ann: hnsw
layout: {part: fixed}
arch: {command: "graph .", output: code.json, timeout_s: 9, hints: 3, min_confidence: 0.5}
limits: {max_record_bytes: 1024, max_depth: 8, shrink_records: 5, shrink_share: 0.5, served_seconds: 45}
merge: {granularity: record}
search: {embed_wait_s: 0}
snapshot: {min_bytes: 0}
include: ["ontology/**/*.yaml"]
"""
    loaded = config.load(base(tmp_path, text), ENV)
    model = EmbeddingSettings("bge-m3", "https://models.example/v1", "MODEL_KEY", 1024, 8, 5.0, 0, True, "int8", 2, 20)
    fusion, expansion = Fusion("minmax", 10, 1.0, 0.2), Expansion("feedback", 0.5, 2)
    lane = VectorSettings("hnsw")
    first = ProviderSettings(
        "http://localhost:3/v1", "f-1", "FAST_KEY", 7.0, False, True, {"thinking": {"type": "enabled"}}
    )
    second = ProviderSettings("https://models.example/v1", "fast", reasoning_body={"think": True})
    fast = ChatModelSettings("fast", (first, second), False, False, "mapped", 600)
    assert plain(loaded.settings) == Settings(
        100,
        "plain",
        "german",
        "simplified",
        "all",
        model,
        fusion,
        expansion,
        lane,
        "fixed",
        1024,
        8,
        "record",
        0.0,
        0,
        Shrink(5, 0.5),
        RerankSettings("http", "judge", "http://localhost:1/v1", "JUDGE_KEY", 7, 5, 600, 2, 3, "wait", "off"),
        ExpandSettings("chat", "writer", "http://localhost:2", "WRITER_KEY", 8, 1700),
        ArchSettings("graph .", "code.json", 9.0, 3, 0.5),
        {"fast": fast, "slow": ChatModelSettings("slow", (ProviderSettings(model="s"),))},
        AskSettings("slow", 300),
        45.0,
    )
    assert {origin.split(":")[0] for origin in loaded.settings.origins.values()} == {"config.yaml"}
    assert isinstance(loaded.settings.embedding.timeout_s, float)


@pytest.mark.parametrize(
    ("line", "pointer", "words"),
    [
        ("chunk_size: 0", "chunk_size", "100 to 50000, is 0"),
        ("chunk_size: -5", "chunk_size", "100 to 50000, is -5"),
        ("chunk_size: 1.0e+9", "chunk_size", "is 1000000000.0"),
        ("chunk_size: 1000000000", "chunk_size", "is 1000000000"),
        ('chunk_size: "800"', "chunk_size", 'is "800"; write it without quotes'),
        ("chunk_size: true", "chunk_size", "is true"),
        ("chunk_size:", "chunk_size", "is nothing"),
        ("tokenizer: jeiba", "tokenizer", "did you mean `jieba`?"),
        ("language: klingon", "language", "must be one of none, arabic"),
        ("fold_chinese: traditional", "fold_chinese", "none, simplified"),
        ("word_forms: folded", "word_forms", "written, all"),
        ("embedding_model: ''", "embedding_model", "must be a text"),
        ("embedding_model: bge-m3", "embedding_model", "needs an endpoint"),
        ("embedding: {base_url: models.example}", "embedding/base_url", "http or https"),
        ("embedding: {base_url: 'file:///etc/passwd'}", "embedding/base_url", "http or https"),
        ("embedding: {base_url: 'https://'}", "embedding/base_url", "http or https"),
        ("embedding: {base_url: 'https://h:99999/'}", "embedding/base_url", "http or https"),
        ("embedding: {base_url: 'https://[::1'}", "embedding/base_url", "http or https"),
        ("embedding: {base_url: 'https://me:hunter2@h/'}", "embedding/base_url", "no user, query or fragment"),
        ("embedding: {base_url: 'https://h/?key=hunter2'}", "embedding/base_url", "no user, query or fragment"),
        ("embedding: {api_key_env: 'hunter2 hunter2'}", "embedding/api_key_env", "not the key itself"),
        ("embedding: {dimensions: 0}", "embedding/dimensions", "1 to 16384"),
        ("embedding: {timeout_s: .inf}", "embedding/timeout_s", "without quotes"),
        ("embedding: {symmetric: 1}", "embedding/symmetric", "true or false"),
        ("embedding: {mode: q8}", "embedding/mode", "q4, int8"),
        ("embedding: {command: rm}", "embedding/command", "unknown key"),
        ("embedding: fast", "embedding", "must be a mapping"),
        ("models: [x]", "models", "must be a mapping"),
        ("models: {'a b': {}}", "models/a b", "cannot name a model"),
        ("models: {m: {}}", "models/m", "needs at least one provider"),
        ("models: {m: [1]}", "models/m", "at least one provider"),
        ("models: {m: {providers: {}}}", "models/m", "at least one provider"),
        ("models: {m: {providers: [3]}}", "models/m/providers/0", "must be a mapping"),
        ("models: {m: {providers: [{url: 'http://h'}]}}", "models/m/providers/0/url", "unknown key"),
        ("models: {m: {providers: [{base_url: h}]}}", "models/m/providers/0/base_url", "http or https"),
        (
            "models: {m: {providers: [{api_key_env: 'hunter2 hunter2'}]}}",
            "models/m/providers/0/api_key_env",
            "not the key",
        ),
        ("models: {m: {providers: [{timeout_s: 0}]}}", "models/m/providers/0/timeout_s", "0.1 to 3600"),
        ("models: {m: {providers: [{}], json: true}}", "models/m/json", "unknown key"),
        ("models: {m: {providers: [{}], reasoning: deep}}", "models/m/reasoning", "none, native"),
        ("models: {m: {providers: [{}], reasoning: mapped}}", "models/m/providers/0", "how to request reasoning"),
        ("ask: {model: m}", "ask/model", "no chat model"),
        ("ask: {budget: 1}", "ask/budget", "200 to"),
        ("fusion: {method: sum}", "fusion/method", "rrf, minmax"),
        ("fusion: {k: 0}", "fusion/k", "1 to 10000"),
        ("fusion: {weight: 1.5}", "fusion/weight", "0 to 1"),
        ("fusion: {gate: -0.1}", "fusion/gate", "0 to 1"),
    ],
)
def test_a_value_out_of_range_names_line_key_and_range(tmp_path: Path, line: str, pointer: str, words: str) -> None:
    found = refused(tmp_path, f"global:\n  {line}\n")
    assert [finding.place for finding in found] == ["config.yaml:2"] * len(found)
    assert found[-1].field == f"/global/{pointer}"
    assert words in found[-1].message
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("text", "pointer", "remedy"),
    [
        ("globall: {}\n", "/globall", "did you mean `global`?"),
        ("global: {chunksize: 800}\n", "/global/chunksize", "did you mean `chunk_size`?"),
        ("chunk_size: 800\n", "/chunk_size", "did you mean `global.chunk_size`?"),
        ("layout: {parts: fixed}\n", "/layout/parts", "did you mean `part`?"),
        ("limits: {max_depht: 3}\n", "/limits/max_depht", "did you mean `max_depth`?"),
        ("global: {base_url: 'http://x'}\n", "/global/base_url", "did you mean `global.embedding.base_url`?"),
        ("hooks: {post: rm -rf /}\n", "/hooks", "known here: global, layout"),
    ],
)
def test_dk_03_an_unknown_key_comes_with_the_nearest_known_one(
    tmp_path: Path, text: str, pointer: str, remedy: str
) -> None:
    found = refused(tmp_path, text)
    assert [(finding.code, finding.place, finding.field) for finding in found] == [
        ("E_CONFIG", "config.yaml:1", pointer)
    ]
    assert found[0].remedy.startswith(remedy)


def test_the_pattern_of_included_files_is_fixed(tmp_path: Path) -> None:
    assert [finding.field for finding in refused(tmp_path, "include: '../*.yaml'\n")] == ["/include"]
    assert (
        config.load(base(tmp_path, "include: ontology/**/*.yaml\n"), ENV).settings
        == config.load(base(tmp_path, 'include: ["ontology/**/*.yaml"]\n'), ENV).settings
    )


@pytest.mark.parametrize(
    "text",
    [
        "global:\n  api_key: hunter2-hunter2\n",
        "global:\n  embedding: {api_key: hunter2-hunter2, base_url: 7}\n",
        "global:\n  embedding: {api_key_env: sk-hunter2-hunter2}\n",
        "global:\n  embedding_model: sk-hunter2-hunter2\n",
        "global:\n  sk-hunter2-hunter2hunter2: 1\n",
        "nodes:\n  T: {table: hunter2, password: hunter2, identity: 7}\n",
        "nodes:\n  T: {identity: id, schema: {properties: {id: {type: string, default: sk-hunter2-hunter2}}}}\n",
        "policies:\n  p: {intents: {allowed: [sk-hunter2-hunter2]}}\n",
        "policies:\n  p: {fusion: {openai_token: 01234567}}\nx: hunter\n",
        "questions:\n- {question: 'use Bearer hunter2hunter2hunter2', type: T, expected: [a]}\n",
        "x: 1\ny: '-----BEGIN RSA PRIVATE KEY----- hunter2'\n",
        "x: 1\nghp_hunter2hunter2hunter2hunter2: {a: [1]}\n",
    ],
)
def test_a_key_inside_the_configuration_stops_the_start_and_is_never_shown(tmp_path: Path, text: str) -> None:
    error = refusal(base(tmp_path, text))
    secrets = [finding for finding in error.findings if "looks like a secret" in finding.message]
    assert [(finding.code, finding.line) for finding in secrets] == [("E_CONFIG", 2)]
    assert "environment" in secrets[0].message
    everything = repr(error) + str(error) + repr(list(error.findings))
    assert "hunter2" not in everything and "1234567" not in everything


def test_fields_and_identities_may_be_called_like_secrets(tmp_path: Path) -> None:
    text = """\
nodes:
  Token:
    identity: token
    schema: {properties: {token: {type: string}, password: {type: string, description: the sk-learn risk-averse way}}}
    search: {full_text: [password]}
global: {embedding: {api_key_env: null}}
questions:
- {question: x, type: Token, expected: {token: 2, password: 1}}
"""
    assert list(config.load(base(tmp_path, text), ENV).ontology.nodes) == ["Token"]


def test_dk_03_settings_types_and_files_are_refused_together(tmp_path: Path) -> None:
    root = base(
        tmp_path,
        "global: {chunk_size: 0}\nunknown: 1\nnodes:\n  A: {identity: x}\n",
        b="edges:\n  e: {from: A, to: Z}\nglobal: {}\n",
        a="nodes:\n\tB: 1\n",
        c="questions:\n- {question: x, type: A, expected: no}\n",
    )
    error = refusal(root)
    assert error.exit_code == 2 and error.code == "E_ONTOLOGY"
    assert [(finding.code, finding.place) for finding in error.findings] == [
        ("E_CONFIG", "config.yaml:1"),
        ("E_CONFIG", "config.yaml:2"),
        ("E_ONTOLOGY", "config.yaml:4"),
        ("E_YAML", "ontology/a.yaml:2"),
        ("E_ONTOLOGY", "ontology/b.yaml:3"),
        ("E_YAML", "ontology/c.yaml:2"),
        ("E_ONTOLOGY", "ontology/c.yaml:2"),
    ]
    assert "7 problems in config.yaml, ontology/a.yaml, ontology/b.yaml and 1 more" in error.message
    assert sorted(path.name for path in root.iterdir()) == ["config.yaml", "ontology"]


def test_an_error_of_one_kind_has_its_code(tmp_path: Path) -> None:
    assert refusal(base(tmp_path, "globall: {}\n")).code == "E_CONFIG"
    assert refusal(base(tmp_path, "a: [\n")).code == "E_YAML"
    assert refusal(base(tmp_path, "a: [\n")).message.startswith("1 problem in config.yaml")


@pytest.mark.parametrize("data", [b"\xff\xfe", b"- 1\n", b"a: &x 1\nb: *x\n", b"a: 1\n---\nb: 2\n", b"x" * 2_000_000])
def test_a_config_that_is_no_plain_yaml_is_one_clear_refusal(tmp_path: Path, data: bytes) -> None:
    error = refusal(base(tmp_path, data))
    assert {finding.code for finding in error.findings} == {"E_YAML"}


def test_config_show_gives_every_value_with_its_origin(tmp_path: Path) -> None:
    root = base(
        tmp_path, f"global:\n  chunk_size: 400\n{NOTE}", more="edges:\n  links:\n    from: Note\n    to: [Note]\n"
    )
    loaded = config.load(root, config.environment({"DUCKKB_WRITER": "ci"}))
    shown = normalize_config(loaded)
    assert shown["global"]["chunk_size"] == {"value": 400, "origin": "config.yaml:2"}
    assert shown["global"]["embedding"]["batch_size"] == {"value": 64, "origin": "default"}
    assert shown["nodes"]["Note"]["table"] == {"value": "note", "origin": "default"}
    assert shown["nodes"]["Note"]["identity"] == {"value": ["id"], "origin": "config.yaml:4"}
    assert shown["edges"]["links"]["to"] == {"value": ["Note"], "origin": "ontology/more.yaml:4"}
    assert shown["environment"]["writer"] == {"value": "ci", "origin": "DUCKKB_WRITER"}
    assert str(tmp_path) not in json.dumps(shown)
    assert set(shown) == {key.name.split(".")[0] for key in KEYS} | set(SECTIONS) | {"environment"}


def test_config_show_has_the_rows_of_chat_models(tmp_path: Path) -> None:
    text = "global:\n  models:\n    m:\n      providers:\n      - timeout_s: 7\n      tools: false\n"
    row = normalize_config(config.load(base(tmp_path, text), ENV))["global"]["models"]["m"]
    assert (row["tools"], row["json_mode"]) == (
        {"value": False, "origin": "config.yaml:6"},
        {"value": True, "origin": "default"},
    )
    provider = row["providers"][0]
    assert provider["timeout_s"] == {"value": 7.0, "origin": "config.yaml:5"}
    assert provider["model"] == {"value": "m", "origin": "default"}


def test_config_show_knows_every_setting(tmp_path: Path) -> None:
    shown = normalize_config(config.load(base(tmp_path, ""), ENV))
    for key in KEYS:
        place: Any = shown
        for step in key.name.split("."):
            place = place[step]
        assert place == {"value": key.default, "origin": "default"}


def test_config_show_has_policies_and_questions(tmp_path: Path) -> None:
    text = (
        NOTE
        + "policies:\n  p:\n    intents: {default: match}\n    fusion: {k: 5}\nquestions:\n- {question: 什么, type: Note, expected: [a]}\n"
    )
    shown = normalize_config(config.load(base(tmp_path, text), ENV))
    assert shown["policies"]["p"]["intents"]["default"] == {"value": "match", "origin": "config.yaml:5"}
    assert shown["policies"]["p"]["fusion"]["value"] == {"method": "rrf", "k": 5, "weight": 0.7, "gate": 0.0}
    assert shown["questions"][0]["origin"] == "config.yaml:8"


def test_the_example_file_is_the_one_that_the_table_of_settings_makes() -> None:
    assert EXAMPLE.read_text("utf-8") == render(), "make docs"


def test_the_example_file_loads_as_it_stands_and_holds_every_key_with_its_default(tmp_path: Path) -> None:
    loaded = config.load(base(tmp_path, render()), ENV)
    assert plain(loaded.settings) == Settings()
    assert set(loaded.settings.origins) == {key.name for key in KEYS}
    assert "default" not in loaded.settings.origins.values()
    assert len(list(loaded.ontology)) == 1
    assert all(section in loaded.documents[0].value for section in SECTIONS)


@hypothesis_settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([key.name for key in KEYS]),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.just([])
    | st.just({}),
)
def test_any_value_of_any_setting_loads_or_is_refused_at_its_key(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    nested: Any = value
    for step in reversed(name.split(".")):
        nested = {step: nested}
    root = base(tmp_path_factory.mktemp("kb"), json.dumps(nested))
    try:
        settings = config.load(root, ENV).settings
    except OntologyError as error:
        at = "/" + name.replace(".", "/")
        assert all(finding.code == "E_YAML" or finding.field == at for finding in error.findings)
    else:
        assert settings.origins[name] == "config.yaml:1"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here, which could be waited for")
def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    root = base(tmp_path / "kb", NOTE, types="edges: {}\n")
    (tmp_path / "outside.yaml").write_text("nodes: {}\n")
    (root / "ontology" / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (root / "ontology" / "more").symlink_to(tmp_path)
    (root / "ontology" / "old.yml").write_text("nodes: {}\n")
    os.mkfifo(root / "ontology" / "pipe.yaml")
    (root / "ontology" / "README.md").write_text("not YAML: [")
    (root / "ontology" / ".#types.yaml").symlink_to("nowhere")
    error = refusal(root)
    assert [(finding.path, finding.message.split(",")[0]) for finding in error.findings] == [
        ("ontology/link.yaml", "is a link"),
        ("ontology/more", "is a link"),
        ("ontology/old.yml", "would not be read: files of the ontology end in .yaml"),
        ("ontology/pipe.yaml", "is not a regular file"),
    ]


def test_a_linked_ontology_folder_or_config_is_refused(tmp_path: Path) -> None:
    base(tmp_path / "real", NOTE, types="edges: {}\n")
    root = base(tmp_path / "kb", NOTE)
    (root / "ontology").symlink_to(tmp_path / "real" / "ontology")
    assert [finding.path for finding in refusal(root).findings] == ["ontology"]
    (root / "ontology").unlink()
    (root / "config.yaml").unlink()
    (root / "config.yaml").symlink_to(tmp_path / "real" / "config.yaml")
    assert [finding.path for finding in refusal(root).findings] == ["config.yaml"]


def test_files_of_the_ontology_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    node = "nodes:\n  {}: {{identity: id, schema: {{properties: {{id: {{type: string}}}}}}}}\n"
    root = base(tmp_path, "", b=node.format("B"), a=node.format("A"))
    (root / "ontology" / "a" / "deep").mkdir(parents=True)
    (root / "ontology" / "a" / "deep" / "概念.yaml").write_text(node.format("Deep"), "utf-8")
    loaded = config.load(root, ENV)
    assert [document.path for document in loaded.documents] == [
        "config.yaml",
        "ontology/a/deep/概念.yaml",
        "ontology/a.yaml",
        "ontology/b.yaml",
    ]
    assert list(loaded.ontology.nodes) == ["Deep", "A", "B"]


def test_a_folder_without_a_config_is_no_base(tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        config.load(tmp_path, ENV)
    assert (caught.value.code, caught.value.exit_code) == ("E_NO_KB", 1)
