"""Building blocks of the answers' shapes: JSON Schema of values, objects and lists."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT, WHOLE, NUMBER, FLAG = ({"type": name} for name in ("string", "integer", "number", "boolean"))
ANY: Schema = {}
TEXT_OR_NONE, WHOLE_OR_NONE, NUMBER_OR_NONE = ({"type": [name, "null"]} for name in ("string", "integer", "number"))


def object_of(properties: Mapping[str, Schema], *optional: str, description: str = "") -> dict[str, Any]:
    """Return the schema of an object; all properties but the optional ones are required."""
    required_names = [name for name in properties if name not in optional]
    annotations = {"description": description} if description else {}
    return {"type": "object", "properties": dict(properties), "required": required_names, **annotations}


def list_of(items: Schema, description: str = "") -> dict[str, Any]:
    return {"type": "array", "items": items, **({"description": description} if description else {})}
