"""Export of a student as a program of torch or ONNX, with feature map, gate and cuts inside."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch

from pate._files import atomic_write, output_errors
from pate._validation import require
from pate.student._carried import ExportedStudent

ExportFormat = Literal["torch.export", "onnx"]

METADATA = "pate.json"
"""Name of the metadata: an extra file of a torch program, a property of an ONNX model."""

_OUTPUTS = ("probabilities", "labels")
_SUFFIXES: dict[str, str] = {"torch.export": ".pt2", "onnx": ".onnx"}
_NEEDED = ("onnx", "onnxscript")


def export_program(student: ExportedStudent, output: Path, *, format: ExportFormat) -> None:
    """Write a student as a program that needs neither ``pate`` nor the class of its network.

    The input is named by its kind: ``pictures``, uint8 ``[N, 3, size, size]`` that are cropped and
    resized already, or ``features``, float32 ``[N, ...]``; N is any number. The outputs are
    ``probabilities``, float32 ``[N, C]``, and ``labels``, bool ``[N, C]``. The metadata `METADATA`
    describe them, with the names of the labels and the privacy statement.

    Args:
        student: the student, on the processor.
        output: the file.
        format: ``torch.export``, for ``torch.export.load``; or ``onnx``, which needs the extra
            ``onnx``.

    Raises:
        ValueError: in one line, if packages are missing, the suffix of the output does not fit the
            format, or the network cannot be exported.
    """
    suffix = _SUFFIXES[format]
    require(
        output.suffix == suffix,
        f"an output of format {format} that ends in {suffix}",
        output=str(output),
    )
    missing = [name for name in _NEEDED if format == "onnx" and find_spec(name) is None]
    require(
        not missing, "the packages of the extra onnx (pip install 'pate[onnx]')", missing=missing
    )
    input_format = student.input
    # torch might specialise a program traced on one sample to batches of one
    example = torch.zeros(
        2,
        *input_format.shape,
        dtype=torch.uint8 if input_format.kind == "pictures" else torch.float32,
    )
    any_number = ({0: torch.export.Dim("N")},)
    try:
        with _quiet():
            program = torch.export.export(
                student.module, (example,), dynamic_shapes=any_number, strict=False
            )
    # torch raises errors of many classes and any length
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"Expected a network that torch.export takes, got {type(error).__name__}: {reason}"
        ) from None
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths on this machine
    metadata = describe_program(student)
    content = io.BytesIO()  # torch aborts the process where it cannot write to a file
    if format == "torch.export":
        torch.export.save(program, content, extra_files={METADATA: metadata})
    else:
        with _quiet():
            converted = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[input_format.kind],
                output_names=list(_OUTPUTS),
                verbose=False,
            )
        converted.model.metadata_props[METADATA] = metadata
        content.write(converted.model_proto.SerializeToString())
    with output_errors(output), atomic_write(output) as file:
        file.write(content.getbuffer())


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence logs and output of torch while it traces a network."""
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            # torch 2.6 and 2.7, of transforms in a list: only the names of modules in its traces
            # are lost
            warnings.filterwarnings("ignore", "Unable to find the path of the module", UserWarning)
            yield
    finally:
        logging.disable(logging.NOTSET)


def describe_program(student: ExportedStudent) -> str:
    """Return the metadata of an exported student, as JSON."""
    metadata = {
        "pate": student.settings["pate"],
        "input": {"name": student.input.kind} | student.input.to_dict(),
        "outputs": {
            "probabilities": "float32 [N, C]",
            "labels": "bool [N, C], probabilities above the cuts",
        },
        "cuts": student.settings["cuts"],
        "label_names": list(student.label_names),
        "privacy": student.describe(),
    }
    return json.dumps(metadata, indent=2)
