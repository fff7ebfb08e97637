"""A Python-based Triton backend that serves ``backend: "onnxruntime"`` with ONNX Runtime on the CPU.

Triton loads this file in its Python stub (3.10-3.12) for every such model when the backend directory contains no
``libtriton_onnxruntime.so``. It imports ``numpy<2`` and ``onnxruntime`` from the directory in the environment variable
``REPOGEN_BACKEND_SITE``, because the stub ignores PYTHONPATH. With NumPy 2 every output would be empty.
"""
# ruff: noqa: ANN401 - the stub's classes have no types

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), os.environ["REPOGEN_BACKEND_SITE"]]

import graph_rules  # type: ignore[import-not-found]  # noqa: E402 - next to this file, in Triton's sys.path
import numpy as np  # noqa: E402 - importable only now
import ort_session as ort  # type: ignore[import-not-found]  # noqa: E402 - next to this file
import ragged  # type: ignore[import-not-found]  # noqa: E402 - copied next to this file
import triton_python_backend_utils as pb  # type: ignore[import-not-found]  # noqa: E402 - exists in the stub only

Tensors = dict[str, Any]
"""NumPy arrays by tensor name."""


class TritonPythonModel:
    """One instance of one model version; Triton finds the class by its name."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Fill in the missing fields of config.pbtxt, as NVIDIA's backend does.

        Args:
            auto_complete_model_config: The stub's ModelConfig; changed in place.

        Raises:
            pb.TritonModelException: The model does not load, or the config cannot be completed.
        """
        config = auto_complete_model_config.as_dict()
        if not graph_rules.is_complete(config):
            try:
                graph_rules.complete(config, ort.graph_of(ort.open_session(_stub_model_path(), config)))
            except graph_rules.Refusal as refusal:
                raise pb.TritonModelException(str(refusal)) from refusal
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model and check the config against it.

        Args:
            args: Triton's ``model_config`` (JSON), ``model_repository``, ``model_version`` and more.

        Raises:
            pb.TritonModelException: NVIDIA's backend would also reject it.
        """
        config = json.loads(args["model_config"])
        file = config.get("default_model_filename") or "model.onnx"
        try:
            # as Triton's core joins them: an absolute name is appended, where Path() would replace the directory
            path = Path(f"{args['model_repository']}/{args['model_version']}/{file}")
            self._session = ort.open_session(path, config)
            graph = ort.graph_of(self._session)
            graph_rules.check(config, graph)
        except graph_rules.Refusal as refusal:
            raise pb.TritonModelException(str(refusal)) from refusal
        self._batching = config.get("max_batch_size", 0) > 0
        self._states = graph_rules.states_of(config)
        self._updates = frozenset(self._states.values())
        self._states_by_sequence: dict[Any, Tensors] = {}
        declared = {tensor["name"] for tensor in config.get("input", [])}
        declared.update(graph_rules.controls_of(config), self._states)
        self._inputs = {
            tensor.name: tensor for tensor in (*graph.inputs, *graph.initializers) if tensor.name in declared
        }
        self._outputs = {tensor.name: tensor for tensor in graph.outputs}
        self._output_dims = {tensor["name"]: graph_rules.model_dims(tensor) for tensor in config.get("output", [])}
        states = config.get("sequence_batching", {}).get("state", [])
        self._output_dims = {
            **{state["output_name"]: graph_rules.int_dims(state["dims"]) for state in states},
            **self._output_dims,
        }
        self._ragged = {tensor["name"] for tensor in config.get("input", []) if tensor.get("allow_ragged_batch")}
        self._batch_inputs = config.get("batch_input", [])
        self._scatter_sources = graph_rules.scatter_sources_of(config)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return the responses to a batch of requests from Triton's scheduler.

        Requests with equal shapes are concatenated along axis 0 and become one run of ONNX Runtime. A failed run
        becomes the error response of its requests.
        """
        responses: list[Any] = [None] * len(requests)
        groups: dict[object, list[tuple[int, Tensors]]] = {}
        for index, request in enumerate(requests):
            try:
                tensors = self._tensors(request)
            except Exception as error:  # noqa: BLE001 - any failure becomes the request's error response
                responses[index] = _error_response(error)
                continue
            key = self._shape_key(tensors) if self._batching else index
            groups.setdefault(key, []).append((index, tensors))
        for group in groups.values():
            for (index, _), response in zip(group, self._responses(requests, group), strict=True):
                responses[index] = response
        return responses

    def _responses(self, requests: list[Any], group: list[tuple[int, Tensors]]) -> list[Any]:
        """Run one group and return its responses, in order."""
        try:
            return self._run(requests, group)
        except Exception as error:  # noqa: BLE001 - any failure becomes the error response of all requests
            return [_error_response(error) for _ in group]

    def _run(self, requests: list[Any], group: list[tuple[int, Tensors]]) -> list[Any]:
        requested = [requests[index].requested_output_names() for index, _ in group]
        names = [name for name in self._output_dims if name in self._updates or any(name in r for r in requested)]
        tensors = [tensors for _, tensors in group]
        results = self._session.run(names, self._batch(tensors))
        parts = {name: self._split(name, _to_wire(array), tensors) for name, array in zip(names, results, strict=True)}
        if self._states:
            for i, (index, _) in enumerate(group):
                self._store_states(requests[index], {state: parts[update][i] for state, update in self._states.items()})
        return [
            pb.InferenceResponse([pb.Tensor(name, parts[name][i]) for name in names if name in requested[i]])
            for i in range(len(group))
        ]

    def _shape_key(self, tensors: Tensors) -> object:
        """Return what requests must have in common to be one run."""
        return tuple((name, array.shape[1:]) for name, array in tensors.items() if name not in self._ragged)

    def _batch(self, requests: list[Tensors]) -> Tensors:
        """Return the inputs of one run: the requests' rows, and what Triton derives from the requests."""
        batch = {name: self._joined(name, [tensors[name] for tensors in requests]) for name in requests[0]}
        for entry in self._batch_inputs:
            shapes = [tensors[entry["source_input"][0]].shape for tensors in requests]
            dtype = "float32" if entry["data_type"] == "TYPE_FP32" else "int32"
            for target in entry["target_name"]:
                batch[target] = ragged.batch_input(entry["kind"], shapes, dtype)
        return batch

    def _joined(self, name: str, arrays: list[Any]) -> Any:
        """Concatenate an input of several requests: all elements of a ragged one, the rows of another."""
        if name in self._ragged:
            return np.concatenate([array.reshape(-1) for array in arrays])
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def _split(self, name: str, array: Any, requests: list[Tensors]) -> list[Any]:
        """Split an output of the whole run into the outputs of the requests, as NVIDIA's backend does."""
        dims = self._output_dims[name]
        if source := self._scatter_sources.get(name):
            shapes = [tensors[source].shape for tensors in requests]
            return list(ragged.scattered(array, (-1, *dims) if self._batching else dims, shapes))
        if not self._outputs[name].dims:
            array = array.reshape(dims or [1])
        if not self._batching:
            return [np.ascontiguousarray(array)]
        parts, start = [], 0
        for tensors in requests:
            stop = start + next((value.shape[0] for value in tensors.values() if value.ndim), 1)
            if stop > array.shape[0]:
                raise ValueError(
                    f"failed to split the output tensor '{name}' in responses: expected batch size of at least {stop} "
                    f"in model output, got {array.shape[0]}"
                )
            parts.append(np.ascontiguousarray(array[start:stop]))
            start = stop
        return parts

    def _store_states(self, request: Any, states: Tensors) -> None:
        """Store a sequence's states for its next request, until it ends; an empty slot has no correlation ID."""
        correlation_id = request.correlation_id()
        if request.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            self._states_by_sequence.pop(correlation_id, None)
        elif states and correlation_id:
            self._states_by_sequence[correlation_id] = states

    def _stored_states(self, request: Any) -> Tensors:
        """Return the states that the request before this one in its sequence left; empty for the first one."""
        # Triton passes the initial value of each state; later values are only available in its C API.
        starts = request.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
        return {} if starts else self._states_by_sequence.get(request.correlation_id(), {})

    def _tensors(self, request: Any) -> Tensors:
        """Return the request's inputs for ONNX Runtime; optional ones may be missing."""
        tensors: Tensors = {}
        states = self._stored_states(request) if self._states else {}
        for name, tensor in self._inputs.items():
            if name in states:
                tensors[name] = states[name]
                continue
            value = pb.get_input_tensor_by_name(request, name)
            if value is not None:
                array = value.as_numpy()
                tensors[name] = _from_wire(array if tensor.dims else array.reshape(()))
        return tensors


def _stub_model_path() -> Path:
    """Return the model file from the stub's command line, the only place where auto-completion can read it."""
    return Path(Path("/proc/self/cmdline").read_text(encoding="utf-8").split("\0")[1])


def _from_wire(array: Any) -> Any:
    """Convert bytes to str, cut at the first NUL as in NVIDIA's backend (C strings); other dtypes stay unchanged."""
    if array.dtype != np.object_:
        return array
    texts = [value.split(b"\0", 1)[0].decode("utf-8") for value in array.ravel()]
    return np.array(texts, dtype=np.object_).reshape(array.shape)


def _to_wire(array: Any) -> Any:
    """Convert str to bytes; other dtypes stay unchanged."""
    if array.dtype.kind not in "OU":
        return array
    return np.array([str(value).encode() for value in array.ravel()], dtype=np.object_).reshape(array.shape)


def _error_response(error: Exception) -> Any:
    return pb.InferenceResponse(error=pb.TritonError(ort.error_text(error)))
