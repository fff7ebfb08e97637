"""Which versions a real Triton reads from directory names and serves, and repogen's answer to the same question."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from repogen.api.check import check
from repogen.repository.layout import triton_versions
from repogen.repository.version_policy import served_versions
from repogen.serving.process import UnixConnection
from repogen.triton_config.text.parse import parse
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import SharedTriton

POLICIES = {
    "none": "",
    "empty": "version_policy { }",
    "all": "version_policy { all { } }",
    "latest": "version_policy { latest { } }",
    "latest_0": "version_policy { latest { num_versions: 0 } }",
    "latest_2": "version_policy { latest { num_versions: 2 } }",
    "latest_9": "version_policy { latest { num_versions: 9 } }",
    "specific": "version_policy { specific { } }",
    "specific_1_3": "version_policy { specific { versions: [ 1, 3 ] } }",
    "specific_absent": "version_policy { specific { versions: [ 2, 7 ] } }",
    "specific_all_absent": "version_policy { specific { versions: [ 7 ] } }",
}
ONE_INSTANCE = "instance_group { count: 1 kind: KIND_CPU }\n"
# Directory names, each next to a version 1. A version that Triton reads from such a name cannot be loaded.
NAMES = ["5x", "0", "+3", " 4", "\t5", "2.tmp", "1 ", "-2", "-0", "007", "01", "0x1", "v2", "1e3", "\u0663"]


def post(triton: SharedTriton, path: str) -> bytes:
    """Return the body of the server's response, also of an error."""
    endpoint = triton.running.endpoint
    assert endpoint.control is not None
    connection = UnixConnection(endpoint.http.removeprefix("unix:"), timeout=120)
    try:
        headers = {endpoint.control.key: endpoint.control.value}
        connection.request("POST", f"/v2/repository/{path}", body=b"{}", headers=headers)
        return connection.getresponse().read()
    finally:
        connection.close()


def loaded(triton: SharedTriton, name: str) -> dict[int, str]:
    """Load a model; return the state of each version that the server lists (its signed 64-bit number)."""
    post(triton, f"models/{name}/load")
    entries = [entry for entry in json.loads(post(triton, "index")) if entry["name"] == name]
    # the index omits the number of a negative version
    return {int(entry.get("version", "-2")): entry["state"] for entry in entries}


def errors(model: Path) -> list[str]:
    """Return the codes of the errors that `check` reports."""
    return [finding.code for finding in check(model) if finding.severity == "error"]


@pytest.mark.parametrize("case", POLICIES)
def test_version_policy(triton: SharedTriton, case: str) -> None:
    """Versions 1 to 3 under each policy; one that serves no version is an error of `check`."""
    name = f"policy_{case}"
    text = CONFIG.replace('"m"', f'"{name}"') + ONE_INSTANCE + POLICIES[case]
    model = add_model(triton.repository, name, text, 1, 2, 3)
    ready = {version for version, state in loaded(triton, name).items() if state == "READY"}
    assert ready == set(served_versions(parse(text, name), triton_versions(model)))
    assert bool(ready) is not bool(errors(model))
    if case in {"latest", "latest_0", "specific"}:
        assert errors(model) == ["RG115"]
    shutil.rmtree(model)


@pytest.mark.parametrize("name", NAMES)
def test_directory_name(triton: SharedTriton, name: str) -> None:
    """The server lists exactly the versions that `triton_versions` reads from the names.

    A version that cannot be loaded is the only one of its model: tritonserver 2.51 can crash while it unloads the other
    versions of a model whose load failed.
    """
    model_name = f"name_{NAMES.index(name)}"
    model = add_model(triton.repository, model_name, "")
    shutil.copytree(model / "1", model / name)
    versions = [version for version in triton_versions(model) if version != 1]
    policy = f"version_policy {{ specific {{ versions: {versions} }} }}" if versions else POLICIES["all"]
    text = CONFIG.replace('"m"', f'"{model_name}"') + ONE_INSTANCE + policy
    (model / "config.pbtxt").write_text(text, encoding="utf-8")
    states = loaded(triton, model_name)
    assert list(states) == (versions or [1])
    assert (set(states.values()) == {"READY"}) is not bool(errors(model))
    shutil.rmtree(model)
