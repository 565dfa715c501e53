"""Write src/actions.ts, the types and methods of the client, from the server's own OpenAPI document.

python clients/typescript/generate.py          # after a change of an action
python clients/typescript/generate.py --check  # is it current?
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from duckkb.server import openapi
from duckkb.types.codes import CODES

FILE = Path(__file__).parent / "src" / "actions.ts"
_HEAD = """\
// Written by generate.py from the server's OpenAPI document: not to be changed by hand.

import type { CallOptions } from "./http.js";
"""
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
Schema = Mapping[str, Any]


def source() -> str:
    """The file as it should be."""
    operations = [
        (path, one["post"])
        for path, one in openapi.document(False)["paths"].items()
        if "post" in one and path not in ("/mcp", "/search")  # a protocol of its own; another name of /query
    ]
    types = [text for _, one in operations for text in _types(one)]
    methods = "\n".join(_method(path, one) for path, one in operations)
    codes = " |\n  ".join(json.dumps(code) for code in sorted(CODES) if code.startswith("E_"))
    return "\n".join((_HEAD, f"export type ErrorCode =\n  {codes};\n", *types, _class(methods)))


def _types(operation: Schema) -> Iterator[str]:
    name = _name(operation)
    for suffix, content in (("Given", operation["requestBody"]), ("Answer", operation["responses"]["200"])):
        yield f"export type {name}{suffix} = {_type(_schema(content), '')};\n"


def _method(path: str, operation: Schema) -> str:
    name, given = _name(operation), _schema(operation["requestBody"])
    optional = "" if given.get("required") else " = {}"
    said = _said(operation.get("description") or operation["summary"], "  ")
    return (
        f"{said}  {operation['operationId']}(given: {name}Given{optional}, call: CallOptions = {{}}): Promise<{name}Answer> {{\n"
        f"    return this.post({json.dumps(path)}, given, call);\n  }}\n"
    )


def _class(methods: str) -> str:
    return (
        "export abstract class Actions {\n"
        "  protected abstract post<Answer>(path: string, given: object, call: CallOptions): Promise<Answer>;\n\n"
        f"{methods}}}\n"
    )


def _name(operation: Schema) -> str:
    return "".join(word.capitalize() for word in operation["operationId"].split("_"))


def _schema(content: Schema) -> Schema:
    found: Schema = content["content"]["application/json"]["schema"]
    return found


def _type(schema: Schema, indent: str) -> str:
    """A JSON Schema as a type. Raises KeyError for a keyword that it does not know, rather than to say less."""
    if unknown := {"$ref", "allOf", "oneOf", "not", "patternProperties", "if"} & schema.keys():
        raise KeyError(f"{unknown} in {schema}")
    if "anyOf" in schema:
        return _union(_type(one, indent) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return _union(json.dumps(one) for one in schema.get("enum", [schema.get("const")]))
    kinds = schema.get("type", ())
    return _union(_typed(kind, schema, indent) for kind in ([kinds] if isinstance(kinds, str) else kinds)) or "unknown"


def _typed(kind: str, schema: Schema, indent: str) -> str:
    if kind == "array" and "prefixItems" in schema:
        return f"[{', '.join(_type(one, indent) for one in schema['prefixItems'])}]"
    if kind == "array":
        return f"Array<{_type(schema.get('items', {}), indent)}>"
    return _object(schema, indent) if kind == "object" else _PLAIN[kind]


def _object(schema: Schema, indent: str) -> str:
    properties, required, more = schema.get("properties", {}), schema.get("required", ()), indent + "  "
    others = schema.get("additionalProperties")
    if not properties:
        none = "never" if others is False else "unknown"
        return f"Record<string, {_type(others, indent) if isinstance(others, Mapping) else none}>"
    lines = [
        f"{_said(one.get('description', ''), more)}{more}{json.dumps(name)}{'' if name in required else '?'}: {_type(one, more)};\n"
        for name, one in properties.items()
    ]
    if "_type" in properties:  # a record, whose fields are those of its type
        lines.append(f"{more}[field: string]: unknown;\n")
    return f"{{\n{''.join(lines)}{indent}}}"


def _union(types: Iterator[str]) -> str:
    return " | ".join(dict.fromkeys(types))


def _said(text: str, indent: str) -> str:
    return f"{indent}/** {' '.join(text.replace('*/', '* /').split())} */\n" if text else ""


if __name__ == "__main__":
    if "--check" in sys.argv:
        if not FILE.exists() or FILE.read_text("utf-8") != source():
            sys.exit(f"{FILE} is not current: python clients/typescript/generate.py")
    else:
        FILE.write_text(source(), "utf-8")
