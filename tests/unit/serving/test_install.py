"""Installation of the embedded Triton: locked wheels only, atomically."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.errors import ServerError
from repogen.repository.digest import sha256_file
from repogen.serving import install, interpreter, perf_analyzer, wheels

if TYPE_CHECKING:
    from pathlib import Path

RUNTIME = "1.19.2"
STUB = "triton_python_backend_stub"


def wheel(folder: Path, file: str, members: dict[str, str]) -> wheels.Wheel:
    """Write a wheel and return its pin."""
    with zipfile.ZipFile(folder / file, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return wheels.Wheel(file, sha256_file(folder / file), (folder / file).stat().st_size)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a directory for wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


@pytest.fixture
def installation(source: Path, tmp_path: Path) -> install.Installation:
    """Return an installation, not yet installed, whose lock names tiny wheels in ``source``."""
    server = "pytriton/tritonserver"
    members = {
        f"{server}/bin/tritonserver": "binary",
        f"{server}/backends/python/libtriton_python.so": "backend",
        "nvidia_pytriton.libs/libcurl.so": "library",
        "nvidia_pytriton.libs/libb64-98cb6333.so.0d": "base64",
        "nvidia_pytriton.libs/libcudart-09529672.so.12.6.77": "cuda",
        "nvidia_pytriton.libs/libpython3-1.13.so.1.0": "skipped",
        "pytriton/client/client.py": "skipped",
        **{f"{server}/python_backend_stubs/3.{minor}/{STUB}": f"stub 3.{minor}" for minor in range(8, 14)},
    }
    analyzer = {
        "tritonclient-2.51.0.data/data/bin/perf_analyzer": "program",
        "tritonclient-2.51.0.data/data/bin/perf_client": "skipped",
        "tritonclient/http/__init__.py": "skipped",
    }
    tag = interpreter.choose(["cp310", "cp311", "cp312"]).tag
    lock = wheels.WheelLock(
        wheels.LockedProgram("2.51.0", wheel(source, "nvidia_pytriton-0.7.0-py3-none-any.whl", members)),
        wheels.LockedProgram("2.51.0", wheel(source, "tritonclient-2.51.0-x.whl", analyzer)),
        {tag: wheel(source, "numpy-1.26.4-x.whl", {"numpy/__init__.py": "", "numpy/tests/test_x.py": ""})},
        {tag: {RUNTIME: wheel(source, "onnxruntime-1.19.2-x.whl", {"onnxruntime/__init__.py": ""})}},
    )
    return install.locate(RUNTIME, tmp_path / "cache", lock)


class Downloads(Silent):
    """Records the progress of downloads."""

    def __init__(self) -> None:
        """Begin without events."""
        self.events: list[tuple[int, int]] = []

    def download(self, what: str, done: int, total: int) -> None:
        """Record the event."""
        assert what == "numpy-1.26.4-x.whl"
        self.events.append((done, total))


def files(root: Path) -> set[str]:
    """Return the relative path of every file below ``root``, except the lock file."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != "install.lock"}


def test_only_needed_files_are_installed(source: Path, installation: install.Installation) -> None:
    """The server, its libraries and stubs, the runtime without tests, the backend directory with real files."""
    install.install(installation, Silent(), source)

    assert installation.complete
    assert files(installation.server) == {
        *("bin/tritonserver", "python/libtriton_python.so", "stamp.json"),
        *("lib/libb64-98cb6333.so.0d", "lib/libcudart-09529672.so.12.6.77", "lib/libcurl.so"),
        *(f"stubs/{version}/{STUB}" for version in interpreter.SUPPORTED),
    }
    assert files(installation.site) == {"numpy/__init__.py", "onnxruntime/__init__.py", "stamp.json"}
    assert files(installation.backends) == {
        *(f"onnxruntime/{name}.py" for name in ("graph_rules", "model", "ort_session", "ragged")),
        *("python/libtriton_python.so", f"python/{STUB}", "stamp.json"),
    }
    assert not [path for path in installation.backends.rglob("*") if path.is_symlink()]


def test_wheel_with_another_digest_is_rejected(source: Path, installation: install.Installation) -> None:
    """Parts that were installed before stay, and nothing of this part is left."""
    (source / "onnxruntime-1.19.2-x.whl").write_bytes(b"other")
    with pytest.raises(ServerError, match="is not the locked wheel"):
        install.install(installation, Silent(), source)

    assert {path.name for path in installation.root.iterdir()} == {"tritonserver-2.51.0", "install.lock"}


def test_wheel_that_is_replaced_while_it_is_installed(
    source: Path, installation: install.Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of ``--from DIR`` replaces it after its digest was compared: the file that was compared is unpacked."""
    path = source / "onnxruntime-1.19.2-x.whl"

    def compared(file: Path) -> str:
        digest = sha256_file(file)
        if file.name == path.name:
            wheel(source, path.name, {"onnxruntime/__init__.py": "import hostile"})
        return digest

    monkeypatch.setattr(wheels, "sha256_file", compared)
    install.install(installation, Silent(), source)
    assert (installation.site / "onnxruntime" / "__init__.py").read_text() == ""


def test_wheel_that_is_a_fifo_is_rejected(source: Path, installation: install.Installation) -> None:
    """It is not waited for."""
    path = source / "numpy-1.26.4-x.whl"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ServerError, match=r"numpy-1\.26\.4-x\.whl is not in"):
        install.install(installation, Silent(), source)


def test_missing_wheel_is_named(source: Path, installation: install.Installation) -> None:
    """The message names the file, and the hint the option for machines without a network."""
    (source / "numpy-1.26.4-x.whl").unlink()

    with pytest.raises(ServerError, match=r"numpy-1\.26\.4-x\.whl is not in") as caught:
        install.install(installation, Silent(), source)

    assert "--from DIR" in caught.value.hint


def test_progress_of_a_download_has_the_size_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while pip has two copies of the file."""
    archive = wheel(tmp_path, "numpy-1.26.4-x.whl", {"numpy/data.bin": "x" * 5000})
    pip = tmp_path / "pip"
    lines = (
        'for word in "$@"; do if [ "$previous" = --dest ]; then dest=$word; fi; previous=$word; done',
        f'mkdir "$TMPDIR/unpack"; cp {tmp_path}/numpy-1.26.4-x.whl "$TMPDIR/unpack"',
        f'cp {tmp_path}/numpy-1.26.4-x.whl "$dest"; sleep 0.5; rm -r "$TMPDIR/unpack"',
    )
    pip.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    pip.chmod(0o755)
    monkeypatch.setattr(wheels, "python_with_pip", lambda: str(pip))
    progress = Downloads()
    (tmp_path / "folder").mkdir()

    wheels.fetch(archive, "cp311", tmp_path / "folder", progress)

    assert {total for _, total in progress.events} == {archive.size}
    assert max(done for done, _ in progress.events) == archive.size == progress.events[-1][0]


def test_remains_of_a_killed_installation_are_deleted(source: Path, installation: install.Installation) -> None:
    """A staging directory and a part without a stamp are deleted."""
    (installation.root / ".staging-killed").mkdir(parents=True)
    (installation.site / "numpy").mkdir(parents=True)
    (installation.site / "numpy" / "half.py").touch()

    install.install(installation, Silent(), source)

    assert installation.complete
    assert not (installation.root / ".staging-killed").exists()
    assert not (installation.site / "numpy" / "half.py").exists()


def test_second_installation_needs_no_wheels(source: Path, installation: install.Installation) -> None:
    """Installed parts are not downloaded again."""
    install.install(installation, Silent(), source)
    for file in source.iterdir():
        file.unlink()

    install.install(installation, Silent(), source)

    assert installation.complete


def test_wheel_cannot_write_outside_the_destination(tmp_path: Path) -> None:
    """A member with `..` in its path is rejected before it is written."""
    wheel(tmp_path, "evil.whl", {"../escaped": ""})

    with pytest.raises(ServerError, match="outside its root"):
        wheels.unpack(tmp_path / "evil.whl", tmp_path / "destination", str)

    assert not (tmp_path / "escaped").exists()


def test_perf_analyzer_has_the_libraries_of_the_server_under_their_usual_names(
    source: Path, installation: install.Installation
) -> None:
    """The program of the locked wheel, and copies of two libraries that have hashed names in the server's wheel."""
    analyzer = perf_analyzer.install_perf_analyzer(installation, Silent(), source)

    assert files(analyzer) == {"bin/perf_analyzer", "lib/libb64.so.0d", "lib/libcudart.so.12", "stamp.json"}
    assert perf_analyzer.installed_perf_analyzer(installation) == analyzer


def test_perf_analyzer_is_not_installed_at_first(installation: install.Installation) -> None:
    """Looking it up installs nothing."""
    assert perf_analyzer.installed_perf_analyzer(installation) is None
    assert not installation.root.exists()


def test_cache_directory_is_configurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPOGEN_CACHE_DIR overrides the platform's cache directory."""
    monkeypatch.setenv("REPOGEN_CACHE_DIR", str(tmp_path))

    assert install.cache_root() == tmp_path / "triton"


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_directory_of_other_users_is_not_used(installation: install.Installation, source: Path, mode: int) -> None:
    """They could exchange the programs that repogen runs; `REPOGEN_CACHE_DIR` may be shared."""
    install.install(installation, Silent(), source)
    perf_analyzer.install_perf_analyzer(installation, Silent(), source)
    installation.root.chmod(mode)
    assert not installation.complete
    assert perf_analyzer.installed_perf_analyzer(installation) is None
    for action in (install.install, perf_analyzer.install_perf_analyzer):
        with pytest.raises(ServerError, match="can be written by other users"):
            action(installation, Silent(), source)


def test_directory_that_another_user_created_is_not_used(
    installation: install.Installation, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in it was not verified by this user; one of root was. A link of this user is followed."""
    install.install(installation, Silent(), source)
    owner = installation.root.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert installation.complete is (owner == 0)
    monkeypatch.setattr("repogen.files.paths.os.geteuid", lambda: owner)
    linked = replace(installation, root=installation.root.with_name("link"))
    linked.root.symlink_to(installation.root)
    assert linked.complete
    installation.root.chmod(0o777)
    assert not linked.complete
