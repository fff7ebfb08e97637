"""A typical export script: one exporter, a dynamic batch, and a comparison with ONNX Runtime.

``python naive.py CASE.json SCRATCH``, in a project. The verdict is ``batch`` when the export worked and agreed at the
example and at a batch of 1, ``single`` when the model has no batch, else ``rejected``. The script prints one line of
JSON per exporter, and runs the second exporter only when the first one failed. It does not use repogen.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch.utils import _pytree as pytree

_ONNX_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64"}
_EXAMPLE = 16


def load(entry: dict[str, Any]) -> Any:
    """Return the module of a case."""
    source = entry["source"]
    kind = source.get("kind", "torch")
    if kind == "torch_export":
        importlib.import_module("transformers.modeling_outputs")  # one model returns a type of this module
        return torch.export.load(source["path"]).module()
    if kind == "torchscript":
        read: Any = torch.jit.load
        return read(source["path"]).eval()
    if kind == "huggingface":
        import transformers  # noqa: PLC0415 - the other kinds do not need it

        config = json.loads((Path(source["model"]) / "config.json").read_text())
        return getattr(transformers, config["architectures"][0]).from_pretrained(source["model"]).eval()
    torch.manual_seed(0)
    module = import_name(source["factory"])(**source.get("kwargs", {}))
    if "weights" in source:
        module.load_state_dict(torch.load(source["weights"]))
    return module.eval()


def import_name(reference: str) -> Any:
    """Import ``file.py:name``."""
    file, _, name = reference.rpartition(":")
    stem = Path(file).stem
    if stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(stem, file)
        if spec is None or spec.loader is None:
            raise ImportError(file)
        sys.modules[stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[stem])
    return getattr(sys.modules[stem], name)


def sizes(entry: dict[str, Any], batch: int) -> dict[str, int]:
    """Return a size for each dim: the batch size, and 16 for other dims if allowed."""
    bounds = {name: (dim["min"], dim["max"]) for name, dim in entry.get("dims", {}).items()}
    result = {name: min(max(low, _EXAMPLE), high) for name, (low, high) in bounds.items()}
    return {**result, "batch": batch}


def draw(declared: dict[str, Any], chosen: dict[str, int]) -> dict[str, torch.Tensor]:
    """Return random inputs that match the declaration."""
    rng = np.random.default_rng(0)
    inputs = {}
    for name, spec in declared.items():
        shape = [chosen[size] if isinstance(size, str) else size for size in spec["shape"]]
        dtype = np.dtype(spec["dtype"])
        low, high = spec.get("range", (0, 1))
        values = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(low, high + 1, shape)
        inputs[name] = torch.from_numpy(np.asarray(values).astype(dtype))
    return inputs


def arguments(entry: dict[str, Any], module: Any, batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return args and kwargs for a batch: from the examples, or random."""
    chosen = sizes(entry, batch)
    examples = entry.get("examples")
    if isinstance(examples, str) and ".py:" in examples:
        function = import_name(examples)
        parameters = inspect.signature(function).parameters
        inputs = function(**{name: size for name, size in chosen.items() if name in parameters})
    else:
        inputs = draw(entry["inputs"], chosen)
    if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[1], dict):
        return inputs[0], inputs[1]
    if not isinstance(inputs, dict):
        return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
    inputs = {name: torch.as_tensor(value) for name, value in inputs.items()}
    if isinstance(module, torch.jit.ScriptModule):
        return tuple(inputs.values()), {}
    parameters = inspect.signature(module.forward).parameters
    return ((), inputs) if set(inputs) <= set(parameters) else (tuple(inputs.values()), {})


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return all tensors in a nested structure."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def export(module: Any, entry: dict[str, Any], exporter: str) -> tuple[str, list[str]]:
    """Export with a dynamic batch, and return the file and the names of its inputs."""
    args, kwargs = arguments(entry, module, 2)
    flat = tensors((args, kwargs))
    declared = entry.get("inputs", {})
    names = list(declared) if len(declared) == len(flat) else [f"input_{i}" for i in range(len(flat))]
    shapes = [spec["shape"] for spec in declared.values()] if len(declared) == len(flat) else [["batch"] for _ in flat]
    axes = [{axis: size for axis, size in enumerate(shape) if isinstance(size, str)} for shape in shapes]
    path = f"{sys.argv[2]}/{exporter}.onnx"
    if exporter == "dynamo":
        remaining = iter(axes)
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        dynamic = pytree.tree_map(lambda leaf: next(remaining) if isinstance(leaf, torch.Tensor) else None, dict(bound))
        torch.onnx.export(
            module, args, path, kwargs=kwargs, dynamo=True, dynamic_shapes=dynamic, input_names=names, verbose=False
        )
    else:
        by_name = {name: axis for name, axis in zip(names, axes, strict=True) if axis}
        torch.onnx.export(
            module, args, path, kwargs=kwargs, dynamo=False, dynamic_axes=by_name, input_names=names, opset_version=17
        )
    return path, names


def agrees(module: Any, entry: dict[str, Any], path: str, names: list[str], batch: int) -> bool:
    """Whether ONNX Runtime and PyTorch agree at a batch."""
    args, kwargs = arguments(entry, module, batch)
    inputs = tensors((args, kwargs))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    graph_names = [tensor.name for tensor in session.get_inputs()]
    by_name = dict(zip(names if set(graph_names) <= set(names) else graph_names, inputs, strict=False))
    actual = session.run(None, {name: by_name[name].numpy() for name in graph_names})
    with torch.no_grad():
        expected = [tensor.numpy() for tensor in tensors(module(*args, **kwargs))]
    return len(actual) == len(expected) and all(
        a.shape == e.shape and np.allclose(a, e, rtol=1e-3, atol=1e-4) for a, e in zip(actual, expected, strict=True)
    )


def by_exporter(entry: dict[str, Any], exporter: str) -> str:
    """Return the script's verdict with one exporter."""
    module = load(entry)
    path, names = export(module, entry, exporter)
    first = next(iter(entry.get("inputs", {"": {"shape": ["batch"]}}).values()))["shape"]
    batches = bool(first) and isinstance(first[0], str)
    agreed = all(agrees(module, entry, path, names, batch) for batch in ((2, 1) if batches else (2,)))
    return "rejected" if not agreed else "batch" if batches else "single"


def of_file(entry: dict[str, Any]) -> str:
    """Return the script's verdict on an ONNX file, which is published unchanged if it loads and runs."""
    session = onnxruntime.InferenceSession(entry["source"]["path"], providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    for size in (2, 1):
        chosen = {name: size for tensor in inputs for name in tensor.shape if isinstance(name, str)}
        declared = {t.name: {"dtype": _ONNX_TYPES[t.type], "shape": t.shape} for t in inputs}
        outputs = session.run(None, {name: value.numpy() for name, value in draw(declared, chosen).items()})
    if not all(isinstance(output, np.ndarray) for output in outputs):
        return "rejected"
    if str(reference := entry["source"].get("reference", "")).endswith(".npz"):
        stored = np.load(reference)
        actual = session.run(None, {tensor.name: stored[tensor.name] for tensor in inputs})
        if not all(np.allclose(a, stored[o.name]) for a, o in zip(actual, session.get_outputs(), strict=True)):
            return "rejected"
    return "batch" if isinstance(inputs[0].shape[0], str) else "single"


def main() -> None:
    """Print the verdict of each exporter."""
    entry = json.loads(Path(sys.argv[1]).read_text())
    is_file = entry["source"].get("kind") == "onnx"
    for exporter in ("none",) if is_file else ("dynamo", "torchscript"):
        try:
            verdict, why = (of_file(entry) if is_file else by_exporter(entry, exporter)), ""
        except BaseException as error:  # noqa: BLE001 - any exception of a model, including sys.exit
            verdict, why = "rejected", f"{type(error).__name__}: {error}"
        print(json.dumps({"exporter": exporter, "verdict": verdict, "why": why[:300]}), flush=True)  # noqa: T201
        if verdict != "rejected":
            return


if __name__ == "__main__":
    main()
