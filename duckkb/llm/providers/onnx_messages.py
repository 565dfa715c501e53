"""The messages of the ONNX file format that our graphs need, as protobuf writes them.

Names, numbers and types of fields are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3. The
package `onnx` has them all, and takes 33 MB with its dependencies; protobuf comes with onnxruntime.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

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
