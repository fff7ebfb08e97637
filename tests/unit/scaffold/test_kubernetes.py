"""The manifests of `repogen init --kubernetes`, validated against the schemas of Kubernetes and of KServe.

The schemas of Kubernetes are those of the package kubernetes-validate, in which unknown keys are errors.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from repogen.cli.group import main
from repogen.errors import SpecError
from repogen.scaffold.files import scaffold
from repogen.targets import newest_target
from repogen.version import __version__

KSERVE = Path(__file__).parents[2] / "support" / "kserve_inferenceservice.json"
RELEASE = "v1.37.0-local-strict"
FILES = ["kserve.yaml", "sync.yaml", "triton.yaml"]


def kubernetes_schemas() -> Path:
    """Return the directory of the schemas, without importing the package."""
    spec = find_spec("kubernetes_validate")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "kubernetes-json-schema" / RELEASE


def validate(manifest: dict[str, Any]) -> None:
    """Validate one manifest against the schema of its kind.

    Raises:
        ValidationError: It is not valid.
    """
    if manifest["kind"] == "InferenceService":
        jsonschema.Draft202012Validator(json.loads(KSERVE.read_text(encoding="utf-8"))).validate(manifest)
        return

    def retrieve(uri: str) -> Resource[Any]:
        content = json.loads((kubernetes_schemas() / Path(uri).name).read_text(encoding="utf-8"))
        return Resource.from_contents(content, default_specification=DRAFT202012)

    schema = {"$ref": f"{manifest['kind'].lower()}-{manifest['apiVersion'].replace('/', '-')}.json"}
    registry = Registry(retrieve=retrieve)  # type: ignore[call-arg] # its attributes have aliases
    jsonschema.Draft202012Validator(schema, registry=registry).validate(manifest)


@pytest.fixture
def manifests(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Return every manifest by kind; a kind occurs once."""
    paths = [path for path in scaffold(tmp_path, force=False, kubernetes=True) if path.parent.name == "kubernetes"]
    assert sorted(path.name for path in paths) == FILES
    documents = [document for path in paths for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    return {document["kind"]: document for document in documents}


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the only container of a Deployment or CronJob."""
    spec = manifest["spec"]
    spec = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
    (only,) = spec["template"]["spec"]["containers"]
    return dict(only)


def test_manifests_are_valid(manifests: dict[str, dict[str, Any]]) -> None:
    """Every kind that the guide names is there."""
    assert set(manifests) == {"CronJob", "Deployment", "InferenceService", "PersistentVolumeClaim", "Service"}
    for manifest in manifests.values():
        validate(manifest)


@pytest.mark.parametrize("kind", ["CronJob", "Deployment", "InferenceService", "PersistentVolumeClaim", "Service"])
def test_schemas_reject_unknown_keys_and_wrong_types(manifests: dict[str, dict[str, Any]], kind: str) -> None:
    """Also deep in a manifest, so that the test above can fail."""
    manifest = manifests[kind]
    manifest["spec"]["sorce"] = {}
    with pytest.raises(jsonschema.ValidationError, match="sorce"):
        validate(manifest)
    del manifest["spec"]["sorce"]
    if kind in {"CronJob", "Deployment"}:
        container(manifest)["resources"]["requests"] = ["1"]
        with pytest.raises(jsonschema.ValidationError, match="is not of type"):
            validate(manifest)


def test_triton_and_sync_share_repository_and_header(manifests: dict[str, dict[str, Any]]) -> None:
    """Triton reads what the job writes, and the job has the header that Triton's control API requires."""
    triton, sync = container(manifests["Deployment"]), container(manifests["CronJob"])
    assert {"--model-control-mode=explicit", "--model-repository=/models/prod", "--strict-readiness=false"} <= set(
        triton["args"]
    )
    (mount,) = (mount for mount in triton["volumeMounts"] if mount["name"] == "models")
    assert mount["readOnly"]
    assert sync["args"][sync["args"].index("--repository") + 1] == "/models/prod"
    service = manifests["Service"]
    port = next(port["port"] for port in service["spec"]["ports"] if port["name"] == "grpc")
    assert sync["args"][sync["args"].index("--deploy") + 1] == f"{service['metadata']['name']}:{port}"
    headers = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]
        for entry in (*triton["env"], *sync["env"])
        if "valueFrom" in entry
    }
    assert headers["CONTROL_HEADER"] == headers["REPOGEN_CONTROL_HEADER"]
    assert service["spec"]["selector"] == manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]


def test_command_of_the_job_is_a_command_of_repogen(manifests: dict[str, dict[str, Any]]) -> None:
    """Its options are parsed before the server is called."""
    sync = container(manifests["CronJob"])
    result = CliRunner().invoke(main, [*sync["command"][1:], *sync["args"], "--help"])
    assert (sync["command"], result.exit_code) == (["repogen", "sync"], 0)
    options = {
        option for command in ("sync",) for option in CliRunner().invoke(main, [command, "--help"]).output.split()
    }
    assert {argument for argument in sync["args"] if argument.startswith("--")} <= options


def test_images_have_the_release_of_the_spec(tmp_path: Path) -> None:
    """An existing spec is kept; without one, the release is that of the new spec."""
    scaffold(tmp_path / "new", force=False, kubernetes=True)
    assert f"tritonserver:{newest_target().release}-py3" in (tmp_path / "new/kubernetes/triton.yaml").read_text("utf-8")
    spec = "target: {triton: '24.10'}\n"
    (tmp_path / "repogen.yaml").write_text(spec, encoding="utf-8")
    written = scaffold(tmp_path, force=False, kubernetes=True)
    assert sorted(path.name for path in written) == FILES
    assert (tmp_path / "repogen.yaml").read_text(encoding="utf-8") == spec
    text = "".join(path.read_text(encoding="utf-8") for path in written)
    assert text.count("tritonserver:24.10-py3") == 2
    assert "runtimeVersion: 24.10-py3" in text
    assert f"repogen-sync:{__version__}" in text


def test_existing_manifest_is_not_overwritten(tmp_path: Path) -> None:
    """Without force, nothing is written."""
    (tmp_path / "kubernetes").mkdir()
    (tmp_path / "kubernetes" / "sync.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match=r"already exists: .*kubernetes/sync\.yaml; nothing was written"):
        scaffold(tmp_path, force=False, kubernetes=True)
    assert not (tmp_path / "repogen.yaml").exists()


@pytest.mark.parametrize("spec", ["target: {triton: 24.10}", "target: {triton: '24.99'}"])
def test_release_of_the_spec_must_be_known(tmp_path: Path, spec: str) -> None:
    """It is part of the name of an image; nothing is written."""
    (tmp_path / "repogen.yaml").write_text(spec, encoding="utf-8")
    result = CliRunner().invoke(main, ["init", str(tmp_path), "--kubernetes"])
    assert (result.exit_code, "target.triton is not a release" in result.output) == (2, True)
    assert not (tmp_path / "kubernetes").exists()
