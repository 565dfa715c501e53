"""The encoder of multilingual-e5-small as an ONNX graph: a post-norm BERT, mean pooling over the mask, unit length.

Inputs: `x`, float32 of shape (texts, tokens, hidden), the sum of token, position and type embeddings before their layer
norm; `mask`, int32 of shape (texts, tokens), 1 for tokens and 0 for padding. Output: float32 of shape (texts, hidden).
Attention, block-wise linear layers and Gelu are operators of onnxruntime (domain com.microsoft).

The messages of the ONNX file format that our graphs need, as protobuf writes them.

Names, numbers and types of fields are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3. The
package `onnx` has them all, and takes 33 MB with its dependencies; protobuf comes with onnxruntime."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from duckkb.llm.providers.e5_weights import BLOCK, Weights, block_levels, block_values

FLOAT, UINT8, INT8, INT32, INT64 = 1, 2, 3, 6, 7
"""Types of tensors (TensorProto.DataType)."""
ATTRIBUTE_FLOAT, ATTRIBUTE_INT = 1, 2

_PACKAGE = "onnx"
_SCALARS = {
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "OperatorSetIdProto": {"domain": (1, "string"), "version": (2, "int64")},
    "AttributeProto": {"name": (1, "string"), "f": (2, "float"), "i": (3, "int64"), "type": (20, "int32")},
    "NodeProto": {
        "input": (1, "string*"),
        "output": (2, "string*"),
        "op_type": (4, "string"),
        "attribute": (5, "AttributeProto*"),
        "domain": (7, "string"),
    },
    "TensorProto": {"dims": (1, "int64*"), "data_type": (2, "int32"), "name": (8, "string"), "raw_data": (9, "bytes")},
    "Dimension": {"dim_value": (1, "int64"), "dim_param": (2, "string")},
    "TensorShapeProto": {"dim": (1, "Dimension*")},
    "Tensor": {"elem_type": (1, "int32"), "shape": (2, "TensorShapeProto")},
    "TypeProto": {"tensor_type": (1, "Tensor")},
    "ValueInfoProto": {"name": (1, "string"), "type": (2, "TypeProto")},
    "GraphProto": {
        "node": (1, "NodeProto*"),
        "name": (2, "string"),
        "initializer": (5, "TensorProto*"),
        "input": (11, "ValueInfoProto*"),
        "output": (12, "ValueInfoProto*"),
    },
    "ModelProto": {
        "ir_version": (1, "int64"),
        "producer_name": (2, "string"),
        "graph": (7, "GraphProto"),
        "opset_import": (8, "OperatorSetIdProto*"),
    },
}
"""Fields by message, each with number and type, `*` where it is repeated."""


def message_classes() -> dict[str, Any]:
    """Return the classes of the messages, by name. They live in a pool of their own, apart from those of `onnx`."""
    file = FileDescriptorProto(name="duckkb/onnx.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, type_name) in fields.items():
            scalar = _SCALARS.get(type_name.rstrip("*"))
            message.field.add(
                name=field,
                number=number,
                label=FieldDescriptorProto.LABEL_REPEATED
                if type_name.endswith("*")
                else FieldDescriptorProto.LABEL_OPTIONAL,
                type=FieldDescriptorProto.TYPE_MESSAGE if scalar is None else scalar,
                type_name=f".{_PACKAGE}.{type_name.rstrip('*')}" if scalar is None else None,
            )
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


Mode = Literal["q4", "int8"]

_OPSET = 18
_IR_VERSION = 9  # goes with opset 18; newer versions exclude older runtimes
_RUNTIME = "com.microsoft"
_INT8_ACCURACY = 4  # MatMulNBits: activations as int8, the level that has fast kernels
_INT8_MAX = 127
_TENSORS = {
    "float32": FLOAT,
    "uint8": UINT8,
    "int8": INT8,
    "int64": INT64,
}


def encoder_graph(weights: Weights, mode: Mode) -> bytes:
    """Return the serialised model.

    `q4` keeps the blocks as they are, `int8` joins them to one scale a row, for speed.
    """
    graph = _Graph(weights, mode)
    states = graph.norm("x", "emb.ln")
    for layer in range(weights.layers):
        states = _add_encoder_layer(graph, states, f"l{layer}.")
    return graph.model(_pool_states(graph, states))


class _Graph:
    """A collection of nodes and constants, which it names by their order."""

    def __init__(self, weights: Weights, mode: Mode) -> None:
        self.weights = weights
        self.mode = mode
        messages = message_classes()
        self._attribute, self._model = messages["AttributeProto"], messages["ModelProto"]()

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: int | float) -> str:
        nodes = self._model.graph.node
        output = f"{operator}_{len(nodes)}"
        values = [self._make_attribute(name, value) for name, value in attributes.items()]
        nodes.add(op_type=operator, input=inputs, output=[output], domain=domain, attribute=values)
        return output

    def _make_attribute(self, name: str, value: int | float) -> Any:
        if isinstance(value, float):
            return self._attribute(name=name, f=value, type=ATTRIBUTE_FLOAT)
        return self._attribute(name=name, i=value, type=ATTRIBUTE_INT)

    def constant(self, values: np.ndarray) -> str:
        constants = self._model.graph.initializer
        name, little_endian = f"constant_{len(constants)}", values.dtype.newbyteorder("<")
        constants.add(
            name=name,
            dims=values.shape,
            data_type=_TENSORS[values.dtype.name],
            raw_data=np.ascontiguousarray(values, little_endian).tobytes(),
        )
        return name

    def norm(self, states: str, name: str) -> str:
        scale = self.constant(self.weights.floats(f"{name}.w"))
        bias = self.constant(self.weights.floats(f"{name}.b"))
        return self.node("LayerNormalization", states, scale, bias, axis=-1, epsilon=self.weights.epsilon)

    def linear(self, states: str, name: str) -> str:
        bias = self.weights.floats(f"{name}.b")
        blocks = self.weights.blocks(f"{name}.w").reshape(len(bias), -1)
        return (
            self._add_int8_layer(states, blocks, bias)
            if self.mode == "int8"
            else self._add_q4_layer(states, blocks, bias)
        )

    def _add_q4_layer(self, states: str, blocks: np.ndarray, bias: np.ndarray) -> str:
        """Add a layer with repacked blocks: the operator wants neighbours in one byte, and 8 as zero by default."""
        levels = block_levels(blocks)
        packed_levels = self.constant(levels[..., 0::2] | levels[..., 1::2] << 4)
        scales = self.constant(blocks["scale"].astype(np.float32).reshape(-1))
        rows, columns = blocks.shape[0], blocks.shape[1] * BLOCK
        return self.node(
            "MatMulNBits", states, packed_levels, scales, "", "", self.constant(bias),
            domain=_RUNTIME, K=columns, N=rows, bits=4, block_size=BLOCK, accuracy_level=_INT8_ACCURACY,
        )  # fmt: skip

    def _add_int8_layer(self, states: str, blocks: np.ndarray, bias: np.ndarray) -> str:
        values = block_values(blocks).reshape(len(bias), -1)
        scales = np.maximum(np.abs(values).max(axis=1), 1e-8) / _INT8_MAX
        int8_values = np.rint(values / scales[:, None]).astype(np.int8).T
        constants = (int8_values, scales, np.zeros(len(bias), np.int8), bias)
        return self.node("DynamicQuantizeMatMul", states, *map(self.constant, constants), domain=_RUNTIME)

    def model(self, output: str) -> bytes:
        """Return the serialised model of the collected nodes, with `output` as its output."""
        graph = self._model.graph
        graph.name = "multilingual-e5-small"
        for ports, name, type, shape in (
            (graph.input, "x", FLOAT, ("texts", "tokens", self.weights.hidden)),
            (graph.input, "mask", INT32, ("texts", "tokens")),
            (graph.output, output, FLOAT, ("texts", self.weights.hidden)),
        ):
            tensor = ports.add(name=name).type.tensor_type
            tensor.elem_type = type
            for size in shape:
                tensor.shape.dim.add(**{"dim_param" if isinstance(size, str) else "dim_value": size})
        self._model.ir_version, self._model.producer_name = _IR_VERSION, "duckkb"
        for domain, version in (("", _OPSET), (_RUNTIME, 1)):
            self._model.opset_import.add(domain=domain, version=version)
        return bytes(self._model.SerializeToString(deterministic=True))


def _add_encoder_layer(graph: _Graph, states: str, name: str) -> str:
    query, key, value = (graph.linear(states, name + part) for part in "qkv")
    heads = graph.weights.heads
    attention = graph.node("MultiHeadAttention", query, key, value, "", "mask", domain=_RUNTIME, num_heads=heads)
    states = graph.norm(graph.node("Add", states, graph.linear(attention, name + "ao")), name + "aln")
    inner = graph.node("Gelu", graph.linear(states, name + "fi"), domain=_RUNTIME)
    return graph.norm(graph.node("Add", states, graph.linear(inner, name + "fo")), name + "oln")


def _pool_states(graph: _Graph, states: str) -> str:
    """Return the mean of the states of real tokens, at unit length."""
    first = graph.constant(np.array([1], np.int64))
    last = graph.constant(np.array([2], np.int64))
    mask = graph.node("Cast", "mask", to=FLOAT)
    masked_states = graph.node("Mul", states, graph.node("Unsqueeze", mask, last))
    total = graph.node("ReduceSum", masked_states, first, keepdims=0)
    mean = graph.node("Div", total, graph.node("ReduceSum", mask, first, keepdims=1))
    return graph.node("Div", mean, graph.node("ReduceL2", mean, first, keepdims=1))
