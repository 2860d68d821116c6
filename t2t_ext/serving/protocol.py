"""The part of TF Serving's Predict protocol that clients and warm-up requests need, without importing TensorFlow.

The classes of tensorflow-serving-api import all of TensorFlow (seconds, hundreds of MB) only for ``TensorProto``, and
they are one more dependency that must fit TensorFlow's version. The wire format knows only field numbers. The few
messages here have the numbers and types of ``tensorflow_serving/apis/{predict,model,prediction_log}.proto`` and
``tensorflow/core/framework/{tensor,tensor_shape}.proto``, so they are the same on the wire. They have their own
descriptor pool and do not interfere with TensorFlow's messages if both are loaded. Tests compare them with those of
tensorflow-serving-api.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

PREDICT_METHOD = "/tensorflow.serving.PredictionService/Predict"

Values = Sequence[str] | np.ndarray
DT_FLOAT, DT_INT32, DT_STRING, DT_BOOL = 1, 3, 7, 10  # tensorflow/core/framework/types.proto

BAD_RESPONSE = (message.DecodeError, ValueError, struct.error)  # raised by ``parse_predict_response``
_MOST_DIMENSIONS, _MOST_VALUES = 8, 1 << 24
_PACKAGE = "t2t_ext.serving"
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _FIELD.TYPE_STRING, "bytes": _FIELD.TYPE_BYTES, "int32": _FIELD.TYPE_INT32,
            "int64": _FIELD.TYPE_INT64, "float": _FIELD.TYPE_FLOAT, "bool": _FIELD.TYPE_BOOL}  # fmt: skip
# Message -> field -> (number, type); "*" before a type means repeated.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Dim": {"size": (1, "int64")},
    "TensorShape": {"dim": (2, "*Dim")},
    "Tensor": {
        "dtype": (1, "int32"),  # an enum, which has the same wire format
        "tensor_shape": (2, "TensorShape"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "*float"),
        "int_val": (7, "*int32"),
        "string_val": (8, "*bytes"),
        "bool_val": (11, "*bool"),
    },
    "Version": {"value": (1, "int64")},
    "ModelSpec": {"name": (1, "string"), "version": (2, "Version"), "signature_name": (3, "string")},
    "NamedTensor": {"key": (1, "string"), "value": (2, "Tensor")},  # the wire format of a map's entry
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "*NamedTensor"), "output_filter": (3, "*string")},
    "PredictLog": {"request": (1, "PredictRequest")},
    "PredictionLog": {"predict_log": (6, "PredictLog")},
    "PredictResponse": {"outputs": (1, "*NamedTensor"), "model_spec": (2, "ModelSpec")},
}


def predict_request(
    servable_name: str, signature_name: str, inputs: Mapping[str, Values], version: int | None = None
) -> bytes:
    """Returns a serialized PredictRequest for one of a model's signatures; for the arguments see ``client``."""
    request = _CLASSES["PredictRequest"]()
    request.model_spec.name = servable_name
    request.model_spec.signature_name = signature_name
    if version is not None:
        request.model_spec.version.value = version
    for name, values in inputs.items():
        entry = request.inputs.add(key=name)
        if isinstance(values, np.ndarray):
            entry.value.dtype = DT_FLOAT
            entry.value.tensor_content = np.asarray(values, "<f4").tobytes()
        else:
            entry.value.dtype = DT_STRING
            # Half a surrogate pair, as from a non-UTF-8 byte in a command-line argument, is no text: "?" replaces it.
            entry.value.string_val.extend(string.encode("utf-8", errors="replace") for string in values)
        for size in values.shape if isinstance(values, np.ndarray) else [len(values)]:
            entry.value.tensor_shape.dim.add(size=size)
    return request.SerializeToString()


def prediction_log(request: bytes) -> bytes:
    """Returns a serialized PredictionLog, as a warm-up file contains them, for a serialized PredictRequest."""
    log = _CLASSES["PredictionLog"]()
    log.predict_log.request.MergeFromString(request)
    return log.SerializeToString()


def parse_predict_response(data: bytes) -> dict[str, list]:
    """Returns the tensors of a serialized PredictResponse as (nested) lists of str, float or int.

    Raises:
      DecodeError, ValueError, struct.error: The data are no PredictResponse, or have tensors of a type or size that no
        translation model returns.
    """
    response = _CLASSES["PredictResponse"].FromString(data)
    return {entry.key: _to_list(entry.value) for entry in response.outputs}


_NUMBERS = {DT_FLOAT: ("float_val", "f"), DT_INT32: ("int_val", "i"), DT_BOOL: ("bool_val", "?")}


def _to_list(tensor: Any) -> list:
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    count = math.prod(shape)
    if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0 or count > _MOST_VALUES:
        raise ValueError(f"A tensor of the shape {shape[:_MOST_DIMENSIONS]} is not what a translation model answers.")
    if tensor.dtype == DT_STRING:
        flat = [value.decode("utf-8", errors="replace") for value in tensor.string_val]
    elif tensor.dtype not in _NUMBERS:
        raise ValueError(f"A tensor of type number {tensor.dtype} is none of string, float32, int32 and bool.")
    else:
        field, code = _NUMBERS[tensor.dtype]
        content = tensor.tensor_content
        flat = list(struct.unpack(f"<{count}{code}", content) if content else getattr(tensor, field))
    if 0 < len(flat) < count:  # the format allows repeated last values to be omitted
        flat += [flat[-1]] * (count - len(flat))
    if len(flat) != count:
        raise ValueError(f"A tensor of the shape {shape} has {len(flat)} values.")
    return _nest(flat, shape)


def _nest(flat: list, shape: list[int]) -> list:
    if len(shape) <= 1:
        return flat
    size = math.prod(shape[1:])
    return [_nest(flat[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]


def _make_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="t2t_ext/serving.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, field_type) in fields.items():
            type_name = field_type.removeprefix("*")
            field = message.field.add(
                name=field_name,
                number=number,
                label=_FIELD.LABEL_REPEATED if field_type != type_name else _FIELD.LABEL_OPTIONAL,
                type=_SCALARS.get(type_name, _FIELD.TYPE_MESSAGE),
            )
            if type_name not in _SCALARS:
                field.type_name = f".{_PACKAGE}.{type_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _make_classes()
