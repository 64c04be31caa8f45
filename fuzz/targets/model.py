"""ONNX files: imported and prepared; some of them compiled and run as well."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

import tilewright
from fuzz.samples import models, settings
from fuzz.target import Target, sampled
from tilewright.compilation import prepare
from tilewright.frontend.onnx.read import importer

SIZES = (0, 1, 2, 3, 4, 7, 64, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 63) - 1)
TEXTS = ("", "x", "w", "y", "n", "k0", "i0", "Relu", "MatMul", "Conv", "axis", "pads", "é", "a b", "n+1", "SAME_UPPER")
MOST_ELEMENTS = 1 << 16


def check(data: bytes) -> None:
    """The model is imported and prepared; one of four is compiled, and run on zeros."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        prepare(importer.load(path))
        if sampled(data, 4):
            _run(tilewright.compile(path, threads=1, settings=settings(Path(folder)), memory_limit="64MiB"))


def _run(model: tilewright.CompiledModel) -> None:
    feeds = {}
    for spec in model.inputs:
        shape = tuple(extent if isinstance(extent, int) else 2 for extent in spec.shape)
        if int(np.prod(shape, dtype=np.float64)) > MOST_ELEMENTS:
            return
        feeds[spec.name] = np.zeros(shape, spec.dtype.numpy)
    model.run(None, feeds)


def seeds() -> Iterator[bytes]:
    for model in models():
        yield model.SerializeToString()


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """The model with up to three of its fields changed; what is no model is changed as bytes."""
    source = random.Random(seed)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return data
    for _ in range(source.randint(1, 3)):
        _change(source.choice(list(_messages(model))), source)
    changed = model.SerializeToString()
    return changed if len(changed) <= most else data


def _messages(message: Message) -> Iterator[Message]:
    """``message`` and all messages inside."""
    stack = [message]
    while stack:
        current = stack.pop()
        yield current
        for field, value in current.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                stack.extend(value if field.is_repeated else [value])


def _change(message: Message, source: random.Random) -> None:
    """Change one field of ``message`` itself."""
    field = source.choice(message.DESCRIPTOR.fields)
    if field.is_repeated:
        _change_list(getattr(message, field.name), field, source)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        message.ClearField(field.name) if source.random() < 0.3 else getattr(message, field.name).SetInParent()
    elif source.random() < 0.2:
        message.ClearField(field.name)
    else:
        _assign(message, field, source)


def _assign(message: Message, field: FieldDescriptor, source: random.Random) -> None:
    try:
        setattr(message, field.name, _scalar(field, source))
    except ValueError:  # out of the field's range
        message.ClearField(field.name)


def _change_list(items: "list[object]", field: FieldDescriptor, source: random.Random) -> None:
    is_message = field.type == FieldDescriptor.TYPE_MESSAGE
    action = source.randrange(4)
    if items and action == 0:
        del items[source.randrange(len(items))]
    elif items and action == 1:
        items.append(items[source.randrange(len(items))])
    elif is_message:
        items.add()  # type: ignore[attr-defined]
    else:
        try:
            items.append(_scalar(field, source))
        except ValueError:
            return


def _scalar(field: FieldDescriptor, source: random.Random) -> object:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return source.choice(TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return source.randbytes(source.choice((0, 1, 4, 8, 48))) if source.random() < 0.7 else b"SAME_LOWER"
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return source.choice((0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan")))
        case FieldDescriptor.TYPE_ENUM:
            return source.choice(list(field.enum_type.values_by_number))
        case _:
            return source.choice(SIZES) * source.choice((1, 1, -1))


TARGET = Target("model", check, seeds, mutate=mutate, max_bytes=1 << 16, runs=8_000)
