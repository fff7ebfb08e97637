"""Packing the requirements of Python code, with the real pip and small wheels in a directory."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZipFile

import pytest
from packaging.requirements import Requirement

from repogen.build import packages
from repogen.build.packages import pack, pythons_to_pack
from repogen.errors import ServerError, SourceError
from repogen.serving import wheels
from repogen.targets import target_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = "3.10" if CURRENT != "3.10" else "3.12"


def wheel(index: Path, name: str, tag: str, files: dict[str, str], requires: Sequence[str] = ()) -> None:
    """Write a wheel of version 1.0 with a license."""
    info = f"{name}-1.0.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "License-Expression: MIT"]
    members = {
        **files,
        f"{info}/METADATA": "\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires), "", ""]),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    digests = {path: hashlib.sha256(text.encode()).digest() for path, text in members.items()}
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{len(members[path])}\n"
        for path, digest in digests.items()
    )
    with ZipFile(index / f"{name}-1.0-{tag}.whl", "w") as archive:
        for path, text in {**members, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of wheels that pip uses instead of an index."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    needs = [f'repogen-old; python_version == "{OTHER}"', "numpy>=1", 'repogen-extra; extra == "fast"']
    wheel(directory, "repogen_pure", "py3-none-any", {"repogen_pure.py": "NAME = 'packed'\n"}, needs)
    wheel(directory, "repogen_old", "py3-none-any", {"repogen_old.py": ""})
    wheel(directory, "numpy", "py3-none-any", {"numpy.py": ""})
    for python in (CURRENT, OTHER):
        tag = "cp" + python.replace(".", "")
        data = "repogen_native-1.0.data"
        files = {
            "repogen_native.py": f"TAG = {tag!r}\n",
            f"{data}/scripts/run": "",
            f"{data}/platlib/repogen_more.py": "",
        }
        wheel(directory, "repogen_native", f"{tag}-{tag}-manylinux2014_x86_64", files)
    return directory


def tree(directory: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


@pytest.mark.usefixtures("index")
def test_packages_are_laid_out_for_each_python(tmp_path: Path) -> None:
    """Wheels that are the same for each Python are stored once; markers are those of the packed Python; no NumPy."""
    current, other = (f"cp{python.replace('.', '')}" for python in (CURRENT, OTHER))
    requirements = ("repogen-pure==1.0", "repogen-native==1.0")

    packages = pack(requirements, (CURRENT, OTHER), tmp_path / "packed")

    files = tree(packages.directory)
    folders = {path.split("/")[1]: set[str]() for path in files if path.count("/") > 1}
    for path in files:
        if path.endswith(".py") and path.count("/") > 1:
            folders[path.split("/")[1]].add(path.split("/")[2])
    native = {"repogen_native.py", "repogen_more.py"}
    assert folders == {"common": {"repogen_pure.py"}, current: native, other: {*native, "repogen_old.py"}}
    assert not any("scripts" in path or "numpy" in path for path in files)
    assert packages.names == ("repogen-native==1.0", "repogen-old==1.0", "repogen-pure==1.0")
    assert packages.size == sum(map(len, files.values()))
    note = f"packed 3 packages for Python {CURRENT} and {OTHER}, {packages.size / 1e6:.1f} MB: repogen-native==1.0, "
    assert packages.note == f"{note}repogen-old==1.0, repogen-pure==1.0; a server loads those for its own Python"
    lines = files[f"packages/{other}.txt"].decode().splitlines()
    assert [line.partition(" --hash=sha256:")[0] for line in lines] == list(packages.names)

    version = packages.directory  # as staged: the user's file is next to model.py
    (version / "packed_model.py").write_text(
        "import repogen_native, repogen_pure\nclass TritonPythonModel:\n"
        "    names = (repogen_native.TAG, repogen_pure.NAME)\n"
    )
    shadow = tmp_path / "server"
    shadow.mkdir()
    (shadow / "repogen_pure.py").write_text("NAME = 'server'\n")
    code = f"import sys; sys.path[:0] = [{str(shadow)!r}, {str(version)!r}]; import model"
    code += "; print(model.TritonPythonModel.names)"
    run = subprocess.run([sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == f"{(current, 'packed')}\n", run.stderr
    assert tree(version).keys() == {*files, "packed_model.py"}, "importing the packages writes no file"


@pytest.mark.usefixtures("index")
def test_a_server_with_another_python_reports_it(tmp_path: Path) -> None:
    """The message of the ImportError, which Triton shows, names both Pythons and the option."""
    packages = pack(("repogen-pure==1.0",), (OTHER,), tmp_path / "packed")

    code = f"import sys; sys.path.insert(0, {str(packages.directory)!r}); import model"
    run = subprocess.run([sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True, check=False)

    current, other = (f"cp{python.replace('.', '')}" for python in (CURRENT, OTHER))
    expected = (
        f"ImportError: the packages are packed for {other}, and this server has {current}: see pack_for in the spec"
    )
    assert run.stderr.splitlines()[-1] == expected


def test_a_missing_wheel_is_an_error(index: Path, tmp_path: Path) -> None:
    """The error has pip's message, and the hint says what the packages need."""
    wheel(index, "repogen_future", "cp399-cp399-manylinux2014_x86_64", {"repogen_future.py": ""})

    with pytest.raises(SourceError, match=r"pip could not download repogen-future==1\.0 for Python") as raised:
        pack(("repogen-future==1.0",), (CURRENT,), tmp_path / "packed")

    assert raised.value.code == "source.pack"
    assert "No matching distribution" in raised.value.message
    assert "wheel for Linux x86_64" in raised.value.hint


@pytest.mark.parametrize(
    ("needs", "installed", "named"),
    [
        ("repogen-old>=1", "repogen-old==2.0", "repogen-old==2.0"),
        ("repogen-absent>=1", "repogen-old==1.0", "repogen-absent>=1"),
        ("numpy>=2", "repogen-old==1.0", "numpy<2"),
    ],
)
def test_a_dependency_that_does_not_fit_is_named(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: str, installed: str, named: str
) -> None:
    """In the first line, which is all that the error of an ensemble contains; pip's own error does not name it."""
    wheel(index, "repogen_top", "py3-none-any", {"repogen_top.py": ""}, [needs])
    monkeypatch.setattr(packages, "_installed", lambda: {"repogen-old": installed})

    with pytest.raises(SourceError) as raised:
        pack(("repogen-top==1.0",), (OTHER,), tmp_path / "packed")

    expected = f"pip could not download repogen-top==1.0 for Python {OTHER}, because of {named}"
    assert raised.value.record.summary == expected
    assert "versions that are installed here, which must support the Python of the target" in raised.value.hint


def test_damaged_wheel_is_an_error(index: Path, tmp_path: Path) -> None:
    """A wheel without metadata of requirements that can be parsed is reported."""
    wheel(index, "repogen_odd", "py3-none-any", {"repogen_odd.py": ""}, ["what ever !"])

    with pytest.raises(SourceError) as raised:
        pack(("repogen-odd==1.0",), (CURRENT,), tmp_path / "packed")

    assert raised.value.code == "source.pack"


@pytest.mark.parametrize(
    ("pack_for", "release", "expected"),
    [
        (("3.12", "3.10"), "24.10", ("3.10", "3.12")),
        ((), "24.10", tuple(sorted({"3.10", CURRENT} - {"3.13", "3.14"}))),
        ((), "26.08", tuple(sorted({"3.12", CURRENT} - {"3.13", "3.14"}))),
        ((), "99.01", tuple(sorted({"3.12", CURRENT} - {"3.13", "3.14"}))),
    ],
)
def test_pythons_by_default(pack_for: tuple[str, ...], release: str, expected: tuple[str, ...]) -> None:
    """They are that of NVIDIA's image, and the one that runs repogen, if the embedded Triton supports it."""
    assert pythons_to_pack(pack_for, target_of(release)) == expected


def test_nothing_is_built(index: Path, tmp_path: Path) -> None:
    """A wheel whose metadata requires an archive with a build does not run the build."""
    ran = tmp_path / "ran"
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "build"\nbackend-path = ["."]\n',
        "build.py": f"open({str(ran)!r}, 'w')\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: repogen_evil\nVersion: 1.0\n",
    }
    with tarfile.open(tmp_path / "repogen_evil-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"repogen_evil-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    url = (tmp_path / "repogen_evil-1.0.tar.gz").as_uri()
    wheel(index, "repogen_user", "py3-none-any", {"repogen_user.py": ""}, [f"repogen-evil @ {url}"])
    with pytest.raises(SourceError, match="only wheels"):
        pack(("repogen-user==1.0",), (CURRENT,), tmp_path / "packed")
    assert not ran.exists()


@contextmanager
def served_index(name: str, link: str, file: bytes | None, paths: list[str]) -> Iterator[str]:
    """Serve an index whose every page links to one wheel, and yield its URL.

    Args:
        name: Name of the wheel.
        link: URL of the link.
        file: The content of ``/NAME``; None redirects to ``link``.
        paths: Receives the paths of the requests.
    """

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            is_wheel = self.path == f"/{name}"
            content = file or b"" if is_wheel else f'<a href="{link if file else f"/{name}"}">{name}</a>'.encode()
            self.send_response(302 if is_wheel and file is None else 200)
            if is_wheel and file is None:
                self.send_header("Location", link)
            self.send_header("Content-Type", "application/octet-stream" if is_wheel else "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "max-age=3600")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


def use_index(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Set the variables with which pip has one index and an own cache."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setenv("PIP_CACHE_DIR", str(cache))
    monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.1")  # pip caches responses of https and of trusted hosts
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("is_linked", [True, False])
def test_an_index_cannot_name_a_wheel_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_linked: bool
) -> None:
    """It is not published, whether a page links to it or a download redirects to it; a configured directory works."""
    private = tmp_path / "private"
    private.mkdir()
    wheel(private, "repogen_secret", "py3-none-any", {"repogen_secret.py": "KEY = 1\n"})
    path = private / "repogen_secret-1.0-py3-none-any.whl"
    with served_index(path.name, path.as_uri(), b"unused" if is_linked else None, []) as url:
        use_index(monkeypatch, url, tmp_path / "cache")
        with pytest.raises(SourceError, match=f"links to {path}, a file of this machine|redirect") as caught:
            pack(("repogen-secret==1.0",), (CURRENT,), tmp_path / "packed")
        assert "Traceback" not in str(caught.value)
        if is_linked:
            monkeypatch.setenv("PIP_FIND_LINKS", str(private))
            pack(("repogen-secret==1.0",), (CURRENT,), tmp_path / "packed")
            assert (tmp_path / "packed/result/packages/common/repogen_secret.py").is_file()


def test_index_is_not_a_directory_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip reads a directory ``http:/HOST/simple/NAME`` instead of that URL; another user may have created it."""
    wheel(tmp_path, "repogen_pure", "py3-none-any", {"repogen_pure.py": "IS_REAL = True\n"})
    path = tmp_path / "repogen_pure-1.0-py3-none-any.whl"
    working = tmp_path / "working"
    working.mkdir()
    wheel(working, "repogen_pure", "py3-none-any", {"repogen_pure.py": "IS_REAL = False\n"})
    monkeypatch.chdir(working)
    with (
        served_index(path.name, f"/{path.name}", path.read_bytes(), []) as url,
        served_index(path.name, f"/{path.name}", (working / path.name).read_bytes(), []) as other_url,
    ):
        planted = working / url / "repogen-pure"
        planted.mkdir(parents=True)
        (planted / "index.html").write_text(
            f'<a href="{other_url.removesuffix("/simple")}/{path.name}">{path.name}</a>'
        )
        use_index(monkeypatch, url, tmp_path / "cache")
        pack(("repogen-pure==1.0",), (CURRENT,), tmp_path / "packed")
    assert (tmp_path / "packed/result/packages/common/repogen_pure.py").read_text() == "IS_REAL = True\n"


@pytest.mark.parametrize("is_in_file", [True, False])
def test_relative_directory_of_wheels(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_in_file: bool
) -> None:
    """It is relative to the working directory of repogen, as that of pip is."""
    monkeypatch.chdir(tmp_path)
    if is_in_file:
        (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {index.name}\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", "pip.conf")
        monkeypatch.delenv("PIP_FIND_LINKS")
    else:
        monkeypatch.setenv("PIP_FIND_LINKS", index.name)
    pack(("repogen-old==1.0",), (CURRENT,), Path("packed"))
    assert (tmp_path / "packed/result/packages/common/repogen_old.py").is_file()


@pytest.mark.parametrize("name", ["PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT"])
def test_relative_path_in_a_public_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Another user may have created what it names."""
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)
    monkeypatch.chdir(public)
    monkeypatch.setenv(name, "wheels")
    with pytest.raises(ServerError, match="has the relative path 'wheels', and other users can create") as caught:
        pack(("repogen-old==1.0",), (CURRENT,), tmp_path / "packed")
    assert caught.value.code == "working-directory.foreign"


def test_log_of_pip_is_not_written(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link of another user may have its name."""
    monkeypatch.setenv("PIP_LOG", str(tmp_path / "pip.log"))
    assert index.is_dir()
    pack(("repogen-old==1.0",), (CURRENT,), tmp_path / "packed")
    assert not (tmp_path / "pip.log").exists()


def test_rustc_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip runs it for its user agent, and rustup's proxy would run what a file above the working directory names."""
    program = tmp_path / "bin" / "rustc"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho rustc 1.80.0\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    wheel(tmp_path, "repogen_pure", "py3-none-any", {"repogen_pure.py": ""})
    path = tmp_path / "repogen_pure-1.0-py3-none-any.whl"
    with served_index(path.name, f"/{path.name}", path.read_bytes(), []) as url:
        use_index(monkeypatch, url, tmp_path / "cache")
        pack(("repogen-pure==1.0",), (CURRENT,), tmp_path / "packed")
    assert not (tmp_path / "ran").exists()


def test_a_cached_wheel_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip's cache is not a directory of its configuration, but pip itself stored what it contains."""
    wheel(tmp_path, "repogen_pure", "py3-none-any", {"repogen_pure.py": ""})
    path = tmp_path / "repogen_pure-1.0-py3-none-any.whl"
    paths: list[str] = []
    with served_index(path.name, f"/{path.name}", path.read_bytes(), paths) as url:
        use_index(monkeypatch, url, tmp_path / "cache")
        for number in range(2):
            pack(("repogen-pure==1.0",), (CURRENT,), tmp_path / f"packed{number}")
    assert paths.count(f"/{path.name}") == 1


@pytest.mark.usefixtures("index")
def test_modules_in_the_working_directory_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip is that of Python, not a file in the working directory."""
    (tmp_path / "pip.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(tmp_path)
    pack(("repogen-old==1.0",), (CURRENT,), tmp_path / "packed")
    assert not (tmp_path / "ran").exists()


def test_wheel_that_expands(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small wheel with very large files is rejected."""
    monkeypatch.setattr(wheels, "_MAX_SMALL_WHEEL_BYTES", 2**20)
    wheel(index, "repogen_large", "py3-none-any", {"large.py": "#" * 2**21})
    path = index / "repogen_large-1.0-py3-none-any.whl"
    with ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ServerError, match="bytes"):
        pack(("repogen-large==1.0",), (CURRENT,), tmp_path / "packed")


@pytest.mark.usefixtures("index")
def test_packages_with_very_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest could not list them; nothing is unpacked."""
    pack(("repogen-old==1.0",), (CURRENT,), tmp_path / "packed")
    monkeypatch.setattr(packages, "_MAX_FILES", 3)
    with pytest.raises(SourceError, match=r"4 files, repogen_old-1.0-\S+ alone 4; the limit is 3") as caught:
        pack(("repogen-old==1.0",), (CURRENT,), tmp_path / "packed")
    assert caught.value.code == "source.pack"
    assert tree(tmp_path / "packed" / "result") == {}


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), (f"a{'b' * 300}",)])
def test_members_that_cannot_be_files(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A member below another one, or with a name that is too long, is damage and not a failure of the disk."""
    with ZipFile(tmp_path / "odd.whl", "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    with pytest.raises(ServerError, match="cannot be unpacked"):
        wheels.unpack(tmp_path / "odd.whl", tmp_path / "unpacked", lambda member: member)


def test_metadata_that_cannot_be_read(tmp_path: Path) -> None:
    """A wheel with an unknown compression is reported."""
    wheel(tmp_path, "repogen_odd", "py3-none-any", {})
    path = tmp_path / "repogen_odd-1.0-py3-none-any.whl"
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[8:10] = content[directory + 10 : directory + 12] = (77).to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(SourceError, match="not a valid wheel"):
        packages._read_wheel(path)  # noqa: SLF001 - pip rejects most of them before


@pytest.mark.parametrize("requirement", [f"other>=1,<{'9' * 5000}", f"other; python_version < '{'9' * 5000}'"])
def test_requirement_with_a_long_number(tmp_path: Path, requirement: str) -> None:
    """Python does not convert it to a number, which a fuzzer found."""
    wheel(tmp_path, "repogen_odd", "py3-none-any", {}, [requirement])
    with pytest.raises(SourceError, match=r"repogen_odd.* is not a valid wheel: it has the requirement other"):
        packages._read_wheel(tmp_path / "repogen_odd-1.0-py3-none-any.whl")  # noqa: SLF001 - pip may reject it before


def test_requirement_that_cannot_be_evaluated(tmp_path: Path) -> None:
    """A marker that compares what it cannot compare is reported, with the wheel."""
    wheel(tmp_path, "repogen_odd", "py3-none-any", {})
    odd = packages._read_wheel(tmp_path / "repogen_odd-1.0-py3-none-any.whl")  # noqa: SLF001 - as above
    odd = odd._replace(requires=(Requirement("other; os_name ~= 'a'"),))
    with pytest.raises(SourceError, match=r"repogen_odd.* has a requirement that cannot be evaluated: other"):
        packages._needed(["repogen-odd==1.0"], {"repogen-odd": odd}, {"os_name": "posix"})  # noqa: SLF001 - the same


@pytest.mark.parametrize("url", ["file:///home/me/other-1.0-py3-none-any.whl", "https://other.example/other.zip"])
def test_requirement_from_a_url(tmp_path: Path, url: str) -> None:
    """A wheel could name a private wheel of this machine, which would then be published."""
    wheel(tmp_path, "repogen_odd", "py3-none-any", {}, [f"other @ {url}"])
    odd = packages._read_wheel(tmp_path / "repogen_odd-1.0-py3-none-any.whl")  # noqa: SLF001 - as above
    with pytest.raises(SourceError, match=r"repogen_odd.* requires other from a URL, not from the index") as caught:
        packages._needed(["repogen-odd==1.0"], {"repogen-odd": odd}, {"os_name": "posix"})  # noqa: SLF001 - the same
    assert caught.value.code == "source.pack"


@pytest.mark.parametrize("compression", [ZIP_BZIP2, ZIP_LZMA])
def test_compression_whose_blocks_have_any_size(tmp_path: Path, compression: int) -> None:
    """Python unpacks a block of bzip2 or LZMA as a whole, so a megabyte would need gigabytes of memory."""
    with ZipFile(tmp_path / "odd.whl", "w", compression) as archive:
        archive.writestr("a.py", "x")
    with pytest.raises(ServerError, match="neither stored nor deflated"):
        wheels.unpack(tmp_path / "odd.whl", tmp_path / "unpacked", lambda member: member)


def read(directory: Path, files: dict[str, str], requires: Sequence[str] = ()) -> packages._Wheel:
    """Return what the metadata of a new wheel states."""
    wheel(directory, "repogen_odd", "py3-none-any", files, requires)
    return packages._read_wheel(directory / "repogen_odd-1.0-py3-none-any.whl")  # noqa: SLF001 - pip rejects some before


@pytest.mark.parametrize("name", ["a\nb.py", "d/" * 31 + "a.py", "repogen_odd-1.0.data/purelib/../a.py"])
def test_members_that_a_manifest_cannot_list(tmp_path: Path, name: str) -> None:
    """A version with such a file could not be published."""
    with pytest.raises(SourceError, match="is not a valid wheel: path"):
        read(tmp_path, {name: ""})


@pytest.mark.parametrize(
    "name",
    ["other-1.0.dist-info/METADATA", "repogen_odd-1.0.data/purelib/./other-1.0.dist-info/METADATA", "b.DIST-INFO/a"],
)
def test_metadata_of_another_package(tmp_path: Path, name: str) -> None:
    """It would replace that package's, or be in the bill of materials of the version."""
    with pytest.raises(SourceError, match=r"is not a valid wheel: it has metadata in .*, not only in repogen_odd"):
        read(tmp_path, {name: "Name: other"})


@pytest.mark.parametrize(
    "metadata", ["", "Name: repogen-odd", "Name: repogen-odd\nVersion: 2.0", "Name: b\nVersion: 1.0"]
)
def test_metadata_with_another_name(tmp_path: Path, metadata: str) -> None:
    """The name and the version are those of the file."""
    path = tmp_path / "repogen_odd-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr("repogen_odd-1.0.dist-info/METADATA", metadata)
    with pytest.raises(SourceError, match="is not a valid wheel"):
        packages._read_wheel(path)  # noqa: SLF001 - as above


def test_packages_with_very_many_requirements(tmp_path: Path) -> None:
    """The time to evaluate them is limited: each extra of a package requires others of the same package."""
    with pytest.raises(SourceError, match="has 5001 requirements; the limit is 5000"):
        read(tmp_path, {}, ["other"] * 5001)
    odd = read(tmp_path, {}, [f"repogen-odd[{','.join(f'e{number}' for number in range(201))}]"])
    with pytest.raises(SourceError, match="required with more than 200 extras"):
        packages._needed(["repogen-odd==1.0"], {"repogen-odd": odd}, {})  # noqa: SLF001 - as above
    odd = read(tmp_path, {}, [f"repogen-odd[e{number}]" for number in range(150)])
    with pytest.raises(SourceError, match="more than 20000 requirements for the extras"):
        packages._needed(["repogen-odd==1.0"], {"repogen-odd": odd}, {})  # noqa: SLF001 - as above


def test_extras_of_extras(tmp_path: Path) -> None:
    """Requirements of each extra are followed, in whichever combinations they are required."""
    lines = ['other; extra == "a"', 'third[x]; extra == "b"', 'repogen-odd[b]; extra == "a"', 'numpy; extra == "a"']
    odd = read(tmp_path, {}, lines)
    environment = packages._environment("3.12")  # noqa: SLF001 - as above
    needed, missing = packages._needed(["repogen-odd[a]==1.0"], {"repogen-odd": odd}, environment)  # noqa: SLF001
    assert (needed, missing) == ({"repogen-odd"}, ["other", "third[x]"])
