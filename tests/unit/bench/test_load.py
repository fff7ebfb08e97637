"""perf_analyzer's command line, its recorded output, and its failures."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.bench import Sample
from repogen.artifacts.serving import UNKNOWN_RUNTIME, ControlHeader, Credentials, Endpoint
from repogen.bench import load as module
from repogen.bench.load import Load, LoadTarget, measure, parse_result
from repogen.errors import BenchError

if TYPE_CHECKING:
    from repogen.artifacts.bench import Variant

RECORDED = Path(__file__).with_name("recorded")
LOCAL = Endpoint(
    *("127.0.0.1:8001", "127.0.0.1:8000", "", "embedded", "2.51.0", ""),
    sees_files=True,
    has_gpu=False,
    control=ControlHeader("Key", "secret"),
)
SOCKET = Endpoint("unix:/run/grpc:8001", "unix:/run/http", "", "docker", "2.72.0", "", sees_files=True, has_gpu=False)


def target(program: Path, endpoint: Endpoint = LOCAL) -> LoadTarget:
    """Return a target whose program is in ``program``."""
    return LoadTarget(program, endpoint, "digits", 3, program / "inputs.json", 40, ("image", "logits"))


def fake_program(directory: Path, script: str) -> LoadTarget:
    """Return a target whose perf_analyzer is a shell script."""
    binary = directory / "pa" / "bin" / "perf_analyzer"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    binary.chmod(0o755)
    (directory / "pa" / "inputs.json").touch()
    return target(directory / "pa")


def recorded(name: str) -> str:
    """Return what perf_analyzer 2.51.0 wrote."""
    return (RECORDED / name).read_text(encoding="utf-8")


def test_recorded_result_is_parsed() -> None:
    """Latencies are milliseconds, the throughput counts rows, and the number of requests is in the output."""
    sample = parse_result(recorded("batch8.csv"), recorded("batch8.txt"))

    assert sample == Sample(p50=5.226, p95=8.779, p99=12.628, throughput=5328.89, requests=494)


@pytest.mark.parametrize("text", ["", "Concurrency,Inferences/Second\n1,5\n", "p50 latency\nx\n", "x" * 200_000])
def test_result_without_a_measurement_is_an_error(text: str) -> None:
    """An empty or unknown file is not taken for a measurement."""
    with pytest.raises(BenchError, match="perf_analyzer failed"):
        parse_result(text, "")


@pytest.mark.parametrize(
    ("variant", "expected", "missing"),
    [
        ("grpc", ["-i grpc -u 127.0.0.1:8001", "-b 8", "--concurrency-range 4", "-x 3"], "--shared-memory"),
        ("http", ["-i http -u 127.0.0.1:8000"], "--shared-memory"),
        ("shm", ["-i grpc", "--shared-memory system", "-H triton-grpc-protocol-key:secret"], "http"),
    ],
)
def test_arguments(variant: Variant, expected: list[str], missing: str, tmp_path: Path) -> None:
    """Each variant has its protocol; only shared memory needs the header of the control API."""
    arguments = " ".join(module._arguments(target(tmp_path), Load(variant, 8, 4, 0.3), 0.1))  # noqa: SLF001 - what a user sees

    assert [part for part in expected if part not in arguments] == []
    assert missing not in arguments


def test_credentials_are_used_over_grpc(tmp_path: Path) -> None:
    """TLS files and headers; repogen has no other way to reach a server that needs them."""
    files = {"root_certificates": tmp_path / "root.pem", "private_key": Path("key.pem")}
    credentials = Credentials(tls=True, headers={"authorization": "Bearer a:b"}, **files)
    endpoint = Endpoint("h:1", "", "", "remote", "2", "", sees_files=False, has_gpu=True, credentials=credentials)

    arguments = module._arguments(target(tmp_path, endpoint), Load("grpc", 1, 1, 0.3), 0.1)  # noqa: SLF001 - as above

    assert arguments[-7:] == [
        "--ssl-grpc-use-ssl",
        *("--ssl-grpc-root-certifications-file", str(tmp_path / "root.pem")),
        *("--ssl-grpc-private-key-file", str(Path("key.pem").absolute())),
        *("-H", "authorization:Bearer a:b"),
    ]


def test_headers_are_not_in_the_command_line(tmp_path: Path) -> None:
    """Other users can read it; the program receives them."""
    script = f"""tr '\\0' ' ' < /proc/$$/cmdline > {tmp_path}/cmdline
    while [ $# -gt 0 ]; do [ $1 = -H ] && echo $2 > {tmp_path}/header; shift; done; exit 1"""

    with pytest.raises(BenchError):
        measure(fake_program(tmp_path, script), Load("shm", 1, 1, 0.1))

    assert (tmp_path / "header").read_text(encoding="utf-8") == "triton-grpc-protocol-key:secret\n"
    assert "secret" not in (tmp_path / "cmdline").read_text(encoding="utf-8")


def test_model_without_a_batch_gets_no_batch_size(tmp_path: Path) -> None:
    """perf_analyzer rejects ``-b`` for such a model."""
    assert "-b" not in module._arguments(target(tmp_path), Load("grpc", 0, 1, 0.3), 0.1)  # noqa: SLF001 - as above


def test_failure_names_the_error_of_the_thread(tmp_path: Path) -> None:
    """The message is the server's, without the usage text."""
    (tmp_path / "log").write_text(recorded("too-large.txt"), encoding="utf-8")

    with pytest.raises(BenchError, match="batch-size must be <= 32 for 'digits_cnn'") as caught:
        measure(fake_program(tmp_path, f"cat {tmp_path}/log; exit 99"), Load("grpc", 64, 1, 0.1))

    assert caught.value.code == "bench.load"


def test_window_without_requests_is_extended(tmp_path: Path) -> None:
    """A slow model is measured in longer windows."""
    (tmp_path / "result.csv").write_text(recorded("batch8.csv"), encoding="utf-8")
    script = f"""
    while [ $# -gt 0 ]; do case $1 in -p) window=$2;; -f) result=$2;; esac; shift; done
    echo $window >> {tmp_path}/windows
    if [ $window -lt 500 ]; then echo 'No valid requests recorded. Please use a larger time window.'; exit 2; fi
    cp {tmp_path}/result.csv $result"""

    sample = measure(fake_program(tmp_path, script), Load("grpc", 1, 1, 0.3))

    assert (tmp_path / "windows").read_text(encoding="utf-8").split() == ["100", "400", "1600"]
    assert sample.p50 == 5.226


def test_shared_memory_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    """Regions with the names of tensors are removed, and those of others stay."""
    regions = [Path("/dev/shm") / name for name in ("repogentest_image_0_1", "repogentest_other_0_1")]  # noqa: S108
    script = f"touch {regions[0]} {regions[1]}; kill -9 $$"
    fake = fake_program(tmp_path, script)
    fake = LoadTarget(fake.program, LOCAL, "m", 1, fake.data, 40, ("repogentest/_image",))
    try:
        with pytest.raises(BenchError):
            measure(fake, Load("shm", 1, 1, 0.1))
        assert [region.exists() for region in regions] == [False, True]
    finally:
        for region in regions:
            region.unlink(missing_ok=True)


def test_shared_memory_is_created_before_it_is_used(tmp_path: Path) -> None:
    """perf_analyzer does not create regions exclusively: another user could create them, and read the inputs."""
    regions = [Path("/dev/shm") / f"repogentest_{name}" for name in ("x", "x_0_0", "x_0_1", "y", "y_0_0", "y_0_1")]  # noqa: S108
    script = f"stat -c '%a %u' {' '.join(map(str, regions))} > {tmp_path}/modes; kill -9 $$"
    fake = fake_program(tmp_path, script)
    fake = LoadTarget(fake.program, LOCAL, "m", 1, fake.data, 40, ("repogentest/_x", "repogentest_y"), 2)
    with pytest.raises(BenchError):
        measure(fake, Load("shm", 1, 1, 0.1))
    assert (tmp_path / "modes").read_text().split("\n") == [*(f"600 {os.getuid()}" for _ in regions), ""]
    assert not any(region.exists() for region in regions)


@pytest.mark.parametrize(("mode", "owner"), [(0o666, 0), (0o600, 65534), (0o600, 0)])
def test_shared_memory_that_exists(tmp_path: Path, mode: int, owner: int) -> None:
    """The variant is not measured: it could belong to another user, or to another program of this user."""
    region = Path("/dev/shm/repogentest_z_0_0")  # noqa: S108
    fake = fake_program(tmp_path, f"touch {tmp_path}/started")
    fake = LoadTarget(fake.program, LOCAL, "m", 1, fake.data, 40, ("repogentest_z",))
    assert fake.unmeasured("shm") == ""
    region.write_bytes(b"theirs")
    try:
        region.chmod(mode)
        os.chown(region, owner, -1)
        assert str(region) in fake.unmeasured("shm")
        assert fake.unmeasured("grpc") == ""
        with pytest.raises(BenchError, match="exists already"):
            measure(fake, Load("shm", 1, 1, 0.1))
        assert not (tmp_path / "started").exists()
        assert region.read_bytes() == b"theirs"
    finally:
        region.unlink()
    assert not Path("/dev/shm/repogentest_z").exists()  # noqa: S108


def test_unreachable_variants_have_a_reason(tmp_path: Path) -> None:
    """HTTP needs a port, and shared memory needs a server in the same memory."""
    local, container = target(tmp_path), target(tmp_path, SOCKET)
    variants: tuple[Variant, ...] = ("grpc", "http", "shm")

    assert [bool(local.unmeasured(variant)) for variant in variants] == [False, False, False]
    assert [bool(container.unmeasured(variant)) for variant in variants] == [False, True, True]
    assert container.unmeasured("http") == "the server has no HTTP port that perf_analyzer can reach"
    remote = target(tmp_path, replace(LOCAL, http="", kind="remote"))
    assert remote.unmeasured("http") == "the HTTP address of the server is unknown"


def test_description_of_a_server() -> None:
    """A remote server does not report its runtime."""
    embedded = replace(LOCAL, runtime="ONNX Runtime 1.19.2")
    assert embedded.description == "Triton 2.51.0 (embedded, ONNX Runtime 1.19.2)"
    assert replace(LOCAL, kind="remote", runtime=UNKNOWN_RUNTIME).description == "Triton 2.51.0 (remote)"


def test_memory_is_limited(tmp_path: Path) -> None:
    """A server could respond with 2 GiB to every concurrent request; the limit is for private memory."""
    fake = fake_program(tmp_path, "ulimit -d; kill -ABRT $$")
    fake.data.write_bytes(b"x" * 60)
    load = Load("grpc", 8, 4, 0.3)
    assert module.memory_limit(fake, load) == 4 * 2**30 + 4 * (2**26 + 8 * 8 * 100)
    with pytest.raises(BenchError, match=r"perf_analyzer crashed \(SIGABRT\)") as caught:
        measure(fake, load)
    assert caught.value.details.split()[0] == str(module.memory_limit(fake, load) // 1024)
    assert "larger responses" in caught.value.hint


@pytest.mark.parametrize("output", ["printf 'error: caf\\351\\n'", "head -c 20000000 /dev/zero; echo"])
def test_output_of_any_bytes_and_size(tmp_path: Path, output: str) -> None:
    """It contains messages of the server."""
    fake = fake_program(tmp_path, output)
    with pytest.raises(BenchError, match=r"perf_analyzer failed: (error: caf\ufffd|it printed no error)"):
        measure(fake, Load("grpc", 1, 1, 0.3))


def test_shared_memory_that_another_process_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any process may create and remove files there at any time."""
    monkeypatch.setattr(module, "_SHARED_MEMORY", tmp_path)
    lstat = Path.lstat

    def removed(path: Path) -> object:
        if path.parent == tmp_path:
            path.unlink()
        return lstat(path)

    (tmp_path / "pa").mkdir()
    with monkeypatch.context() as patch, module._own_regions(target(tmp_path / "pa"), "grpc"):  # noqa: SLF001 - a moment of a run
        (tmp_path / "logits_0_0").touch()
        (tmp_path / "other").touch()
        patch.setattr(Path, "lstat", removed)
    assert (tmp_path / "other").exists()
    assert not (tmp_path / "logits_0_0").exists()
