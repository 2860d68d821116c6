"""Loads an exported model through TensorFlow's C API with ctypes; never imports tensorflow.

This is the counterpart of load_saved_model.c for machines without a compiler. It takes the same arguments:
TEXT_OPS.so EXPORT/1 INPUT_OP OUTPUT_OP OUTPUT_INDEX LINE...
"""

import ctypes
import importlib.util
import pathlib
import sys

TF_STRING = 7
POINTERS = (
    "TF_NewStatus", "TF_LoadLibrary", "TF_NewGraph", "TF_NewSessionOptions", "TF_LoadSessionFromSavedModel",
    "TF_AllocateTensor", "TF_TensorData", "TF_GraphOperationByName", "TF_StringGetDataPointer",
)  # fmt: skip
STRING_BYTES = 24  # sizeof(TF_TString), a struct of three words


class Output(ctypes.Structure):
    """The struct TF_Output of TensorFlow's C API."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


def load_library():
    folder = pathlib.Path(importlib.util.find_spec("tensorflow").submodule_search_locations[0])
    ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"), mode=ctypes.RTLD_GLOBAL)
    for name in POINTERS:
        getattr(library, name).restype = ctypes.c_void_p
    library.TF_Message.restype = ctypes.c_char_p
    library.TF_Dim.restype = ctypes.c_int64
    library.TF_StringGetSize.restype = ctypes.c_size_t
    return library


def string_tensor(tf, lines):
    shape = (ctypes.c_int64 * 1)(len(lines))
    size = ctypes.c_size_t(STRING_BYTES * len(lines))
    tensor = ctypes.c_void_p(tf.TF_AllocateTensor(TF_STRING, shape, 1, size))
    data = tf.TF_TensorData(tensor)
    for i, line in enumerate(lines):
        place = ctypes.c_void_p(data + i * STRING_BYTES)
        tf.TF_StringInit(place)
        tf.TF_StringCopy(place, line, ctypes.c_size_t(len(line)))
    return tensor


def strings_of(tf, tensor):
    data = tf.TF_TensorData(tensor)
    places = [ctypes.c_void_p(data + i * STRING_BYTES) for i in range(tf.TF_Dim(tensor, 0))]
    return [ctypes.string_at(tf.TF_StringGetDataPointer(place), tf.TF_StringGetSize(place)) for place in places]


def main(text_ops, directory, input_op, output_op, output_index, *lines):
    tf = load_library()
    status = ctypes.c_void_p(tf.TF_NewStatus())

    def check(what):
        if tf.TF_GetCode(status) != 0:
            sys.exit(f"{what}: {tf.TF_Message(status).decode()}")

    tf.TF_LoadLibrary(text_ops.encode(), status)
    check("TF_LoadLibrary")
    graph = ctypes.c_void_p(tf.TF_NewGraph())
    options = ctypes.c_void_p(tf.TF_NewSessionOptions())
    tags = (ctypes.c_char_p * 1)(b"serve")
    session = ctypes.c_void_p(
        tf.TF_LoadSessionFromSavedModel(options, None, directory.encode(), tags, 1, graph, None, status)
    )
    check("TF_LoadSessionFromSavedModel")
    inputs = (ctypes.c_void_p * 1)(string_tensor(tf, [line.encode() for line in lines]))
    source = Output(tf.TF_GraphOperationByName(graph, input_op.encode()), 0)
    target = Output(tf.TF_GraphOperationByName(graph, output_op.encode()), int(output_index))
    outputs = (ctypes.c_void_p * 1)()
    tf.TF_SessionRun(
        session, None, ctypes.byref(source), inputs, 1, ctypes.byref(target), outputs, 1, None, 0, None, status
    )
    check("TF_SessionRun")
    for line in strings_of(tf, ctypes.c_void_p(outputs[0])):
        sys.stdout.buffer.write(line + b"\n")
    assert "tensorflow" not in sys.modules


if __name__ == "__main__":
    main(*sys.argv[1:])
