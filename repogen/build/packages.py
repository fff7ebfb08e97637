"""Packs the requirements of Python code: wheels for the target's Python, unpacked next to the code.

Triton's Python backend appends the version's directory to ``sys.path``, after the packages of the server. A generated
``model.py`` therefore inserts the packed packages in front of them, and runs the user's file, which is published
unchanged as ``packed_model.py``. The layout, below the version's directory::

    model.py                     inserts packages/cp312 and packages/common
    packed_model.py              the user's file
    packages/cp312.txt           wheels for Python 3.12, with their hashes
    packages/cp312/              content of the wheels for this Python
    packages/common/             content of the wheels that are the same for every packed Python

Source: ``ModelContext::StubSetup`` in pb_stub.cc of triton-inference-server/python_backend, 24.10 to 26.07.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from repogen.artifacts.file_names import (
    MAX_METADATA_BYTES,
    METADATA_FILE,
    METADATA_SUFFIX,
    PACKAGES_DIRECTORY,
    PACKED_CODE_FILE,
    PYTHON_FILE,
)
from repogen.errors import SourceError
from repogen.files.archive import open_archive
from repogen.files.content import ContentError
from repogen.files.tree import walk
from repogen.repository.digest import sha256_file
from repogen.repository.manifest import require_listable
from repogen.serving import wheels
from repogen.serving.interpreter import SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from email.message import Message
    from pathlib import Path

    from repogen.targets import Target

PROVIDED = frozenset({"numpy"})
"""Packages of the server: its Python backend imports NumPy before the code runs."""
COMMON = "common"
_MAX_ROUNDS = 10
_MAX_REQUIREMENT = 2000
"""Characters; Python converts at most 4300 digits to a number, such as one in a version."""
_MAX_REQUIREMENTS = 5000
"""Of one wheel; those with most extras have hundreds."""
_MAX_EXTRAS = 200
"""Of one package that others require: the requirements of the package are evaluated for each."""
_MAX_FILES = 60_000
"""Of all packed packages: the manifest lists each of them, and may have 16 MiB."""
_MAX_EVALUATED = 20_000
"""Requirements of all packages, counted once for each extra; an evaluation takes up to 0.3 ms."""
# The code is verified on the embedded Triton, whose Python backend needs NumPy 1.
_NUMPY = "numpy<2"
# In pip's output, a requirement that no wheel satisfies: the installed version of a dependency, or one of a package.
_UNSATISFIED = re.compile(r"The user requested \(constraint\) (\S+)|that satisfies the requirement (\S+)")
_DATA = re.compile(r"[^/]+\.data/(?P<scheme>[^/]+)/(?P<path>.+)")
_LOADER = f'''\
"""Written by repogen: makes the packed packages importable in front of the server's, and runs {PACKED_CODE_FILE}."""

import importlib.util
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_PACKAGES = _HERE / "{PACKAGES_DIRECTORY}"
_TAG = f"cp{{sys.version_info.major}}{{sys.version_info.minor}}"
if not (_PACKAGES / f"{{_TAG}}.txt").is_file():
    _TAGS = ", ".join(sorted(path.stem for path in _PACKAGES.glob("cp*.txt")))
    raise ImportError(f"the packages are packed for {{_TAGS}}, and this server has {{_TAG}}: see pack_for in the spec")
sys.path[:0] = [str(_PACKAGES / _TAG), str(_PACKAGES / "{COMMON}")]
sys.dont_write_bytecode = True  # the files of the version stay those that were verified
_SPEC = importlib.util.spec_from_file_location("{PACKED_CODE_FILE.removesuffix(".py")}", _HERE / "{PACKED_CODE_FILE}")
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _MODULE
_SPEC.loader.exec_module(_MODULE)
TritonPythonModel = _MODULE.TritonPythonModel
'''


@dataclass(frozen=True)
class PackedPackages:
    """Packages that are ready to be published with Python code.

    Attributes:
        directory: Contains ``model.py`` and ``packages/``.
        pythons: Python versions that they are packed for, for example ``3.12``.
        names: Every package, ``name==version``, sorted.
        size: Bytes of all files.
    """

    directory: Path
    pythons: tuple[str, ...]
    names: tuple[str, ...]
    size: int

    @property
    def note(self) -> str:
        """What is packed, for the report."""
        count = "1 package" if len(self.names) == 1 else f"{len(self.names)} packages"
        pythons = " and ".join(self.pythons)
        loaded = "" if len(self.pythons) == 1 else "; a server loads those for its own Python"
        return f"packed {count} for Python {pythons}, {self.size / 1e6:.1f} MB: {', '.join(self.names)}{loaded}"


class _Wheel(NamedTuple):
    """A downloaded wheel.

    Attributes:
        path: The file.
        name: Canonical name of the project.
        version: Its version.
        sha256: Hex digest of the file.
        requires: Its ``Requires-Dist``.
        files: Number of files that are unpacked.
    """

    path: Path
    name: str
    version: str
    sha256: str
    requires: tuple[Requirement, ...]
    files: int


def pythons_to_pack(pack_for: Sequence[str], target: Target) -> tuple[str, ...]:
    """Return the Python versions to pack for: those of the spec, or the target's and the one that runs repogen.

    The embedded Triton, which verifies the version, prefers the Python that runs repogen.

    Args:
        pack_for: The option of the spec.
        target: The target release.
    """
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = set(pack_for) or {target.python, *({current} & set(SUPPORTED))}
    return tuple(sorted(versions, key=lambda version: int(version.partition(".")[2])))


def pack(requirements: Sequence[str], pythons: Sequence[str], directory: Path) -> PackedPackages:
    """Download the wheels of requirements and of their dependencies, and unpack them; equal wheels give equal bytes.

    Dependencies get the versions that are installed here, because the code was verified with them.

    Args:
        requirements: Each ``name==version``.
        pythons: Python versions, for example ``3.12``.
        directory: Directory for the result; replaced if it exists.

    Raises:
        SourceError: pip cannot find wheels that fit together, a wheel is damaged, or they contain too many files.
        ServerError: pip is not installed.
    """
    shutil.rmtree(directory, ignore_errors=True)
    result, downloads = directory / "result", directory / "wheels"
    packages = result / PACKAGES_DIRECTORY
    packages.mkdir(parents=True)
    resolved = {python: _resolve(requirements, python, downloads / _tag(python)) for python in pythons}
    _require_few_files(resolved.values())
    common = set.intersection(*({wheel.sha256 for wheel in selected} for selected in resolved.values()))
    for python, selected in resolved.items():
        lines = (f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in selected)
        (packages / f"{_tag(python)}.txt").write_text("".join(lines), encoding="utf-8")
        for wheel in selected:
            _unpack(wheel, packages / (COMMON if wheel.sha256 in common else _tag(python)))
    shutil.rmtree(downloads)
    (result / PYTHON_FILE).write_text(_LOADER, encoding="utf-8")
    files = (folder / name for folder, _, names in walk(result) for name in names)
    names = {f"{wheel.name}=={wheel.version}" for selected in resolved.values() for wheel in selected}
    return PackedPackages(result, tuple(pythons), tuple(sorted(names)), sum(path.stat().st_size for path in files))


def _require_few_files(resolved: Iterable[Sequence[_Wheel]]) -> None:
    """Require that a manifest can list the files of all wheels.

    Raises:
        SourceError: There are too many.
    """
    counts = {wheel.sha256: (wheel.files, wheel.path.name) for selected in resolved for wheel in selected}
    total = sum(files for files, _ in counts.values())
    if total > _MAX_FILES:
        most, name = max(counts.values())
        raise _error(f"the packages have {total:,} files, {name} alone {most:,}; the limit is {_MAX_FILES:,}")


def _tag(python: str) -> str:
    return "cp" + python.replace(".", "")


def _resolve(requirements: Sequence[str], python: str, folder: Path) -> tuple[_Wheel, ...]:
    """Return the wheels of requirements and of their dependencies for one Python, sorted by name.

    pip evaluates the markers of dependencies for the Python that runs it, also with ``--python-version``. Dependencies
    that only another Python has are therefore requested in another round.
    """
    requested = list(requirements)
    for _ in range(_MAX_ROUNDS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _download(requested, python, folder)
        available = {wheel.name: wheel for wheel in map(_read_wheel, sorted(folder.glob("*.whl")))}
        needed, missing_requirements = _needed(requirements, available, _environment(python))
        if not missing_requirements:
            return tuple(available[name] for name in sorted(needed))
        requested += missing_requirements
    raise _error(f"the dependencies of {', '.join(requirements)} for Python {python} cannot be resolved")


def _download(requested: Sequence[str], python: str, folder: Path) -> None:
    """Download wheels with pip."""
    folder = folder.absolute()
    constraints = folder.with_suffix(".constraints")
    own = {canonicalize_name(Requirement(requirement).name) for requirement in requested}
    lines = [_NUMPY, *(line for name, line in _installed().items() if name not in own)]
    constraints.write_text("\n".join([*lines, ""]), encoding="utf-8")
    arguments = [
        # without --verbose, pip does not print which requirements are in conflict
        *(
            "download",
            "--verbose",
            "--progress-bar",
            "off",
            *wheels.platform_flags(_tag(python)),
            "--dest",
            str(folder),
        ),
        *("--constraint", str(constraints), *requested),
    ]
    outcome = wheels.run_pip(arguments, folder.parent)
    if outcome.returncode != 0:
        groups = _UNSATISFIED.findall(outcome.stdout + outcome.stderr)
        unsatisfied = sorted({name for group in groups for name in group if name} - set(requested))
        cause = f", because of {' and '.join(unsatisfied)}" if unsatisfied else ""
        raise _error(
            f"pip could not download {', '.join(requested)} for Python {python}{cause}:\n{outcome.stderr.strip()}"
        )


def _installed() -> dict[str, str]:
    """Return a constraint for each installed package, except those that the server provides."""
    constraints: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.name or "")
        try:
            version = Version(distribution.version).public  # an index has no wheel of a local version such as +cpu
        except (InvalidVersion, TypeError):
            continue
        if name and name not in PROVIDED:
            constraints.setdefault(name, f"{name}=={version}")
    return dict(sorted(constraints.items()))


def _read_wheel(path: Path) -> _Wheel:
    """Return what a wheel's name and metadata state."""
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
        with open_archive(path) as archive:
            member = _metadata_member(path, archive.names)
            files = sum(not name.endswith("/") and _path_in_site(name) is not None for name in archive.names)
            metadata = HeaderParser().parsestr(archive.read(member, MAX_METADATA_BYTES).decode(errors="replace"))
        _require_name(metadata, name, version)
        requires = _requires(metadata)
    except ContentError as error:
        raise _error(f"{path.name} is not a valid wheel: it {error}") from error
    except (ValueError, RecursionError) as error:  # of a name, a version or a requirement
        raise _error(f"{path.name} is not a valid wheel: {error}") from error
    return _Wheel(path, name, str(version), sha256_file(path), requires, files)


def _metadata_member(wheel: Path, names: Sequence[str]) -> str:
    """Return the name of the member with the metadata, in the only directory of its kind.

    Metadata of other packages would replace theirs, or be in the bill of materials.

    Raises:
        ContentError: There is none, or there are several.
        ValueError: A manifest cannot list a member.
    """
    own = "-".join(wheel.name.split("-")[:2]) + METADATA_SUFFIX
    paths = {name: PurePosixPath(path).parts for name in names if (path := _path_in_site(name)) is not None}
    folders = {parts[0] for parts in paths.values() if parts[0].lower().endswith(METADATA_SUFFIX)}
    members = [name for name, parts in paths.items() if parts[0] in folders and parts[1:] == (METADATA_FILE,)]
    if {canonicalize_name(folder) for folder in folders} != {canonicalize_name(own)} or len(folders) > 1:
        raise ContentError(f"has metadata in {', '.join(sorted(folders)) or 'no directory'}, not only in {own}")
    if len(members) != 1:
        raise ContentError(f"has {len(members)} files {METADATA_FILE} in {own}")
    return members[0]


def _require_name(metadata: Message, name: str, version: Version) -> None:
    """Require that the metadata of a wheel is that of the package in its file name.

    Raises:
        ContentError: It is not.
        InvalidVersion: It has another kind of version.
    """
    stated = canonicalize_name(metadata.get("Name", "")), Version(metadata.get("Version", ""))
    if stated != (name, version):
        raise ContentError(f"has the metadata of {stated[0]!r:.100} {stated[1]!s:.100}")


def _requires(metadata: Message) -> tuple[Requirement, ...]:
    """Return the requirements in the metadata of a wheel.

    Raises:
        ContentError: One of them is very long, or there are very many.
        InvalidRequirement: One of them is not valid.
    """
    lines = metadata.get_all("Requires-Dist") or ()
    if len(lines) > _MAX_REQUIREMENTS:
        raise ContentError(f"has {len(lines)} requirements; the limit is {_MAX_REQUIREMENTS}")
    if long := next((line for line in lines if len(line) > _MAX_REQUIREMENT), ""):
        raise ContentError(f"has the requirement {long[:40]}…, which is longer than {_MAX_REQUIREMENT} characters")
    return tuple(map(Requirement, lines))


def _needed(
    requirements: Sequence[str], available: Mapping[str, _Wheel], environment: Mapping[str, str]
) -> tuple[set[str], list[str]]:
    """Return the names of the packages that are needed in an environment, and the requirements of missing ones.

    Each extra of a package is followed once, in whichever combinations the package is required.

    Raises:
        SourceError: A requirement cannot be evaluated, or there are very many, or very many extras of a package.
    """
    followed: dict[str, set[str]] = {}
    missing_requirements: set[str] = set()
    evaluated = 0
    queue = [Requirement(requirement) for requirement in requirements]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name in PROVIDED:
            continue
        if name not in available:
            requirement.marker = None
            missing_requirements.add(str(requirement))
            continue
        extras = followed.setdefault(name, set())
        new = {"", *requirement.extras} - extras
        extras |= new
        if len(extras) > _MAX_EXTRAS:
            raise _error(f"{available[name].path.name} is required with more than {_MAX_EXTRAS} extras")
        evaluated += len(new) * len(available[name].requires)
        if evaluated > _MAX_EVALUATED:
            raise _error(f"the wheels have more than {_MAX_EVALUATED} requirements for the extras that are required")
        for extra in sorted(new):
            queue += _dependencies(available[name], extra, environment)
    return set(followed), sorted(missing_requirements)


def _dependencies(wheel: _Wheel, extra: str, environment: Mapping[str, str]) -> Iterator[Requirement]:
    values = {**environment, "extra": extra}
    for dependency in wheel.requires:
        try:
            is_required = dependency.marker is None or dependency.marker.evaluate(values)
        except (ValueError, KeyError) as error:  # it compares what cannot be compared
            raise _error(f"{wheel.path.name} has a requirement that cannot be evaluated: {dependency}") from error
        if is_required and dependency.url is not None:  # pip would also have copied a wheel of this machine
            raise _error(f"{wheel.path.name} requires {dependency.name} from a URL, not from the index")
        if is_required:
            yield dependency


def _environment(python: str) -> dict[str, str]:
    """Return the values of environment markers in a Triton image with a version of Python."""
    return {name: str(value) for name, value in default_environment().items()} | {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def _unpack(wheel: _Wheel, destination: Path) -> None:
    wheels.unpack(wheel.path, destination, _path_in_site)


def _path_in_site(member: str) -> str | None:
    """Return the path of a wheel's member in a directory of packages; None for programs, headers and other data.

    Raises:
        ValueError: A manifest cannot list it.
    """
    match = _DATA.fullmatch(member)
    if match is not None and match["scheme"] not in {"purelib", "platlib"}:
        return None
    path = member if match is None else match["path"]
    require_listable(f"{PACKAGES_DIRECTORY}/{COMMON}/{path}")
    return path


def _error(message: str) -> SourceError:
    return SourceError(
        message,
        "every package needs a wheel for Linux x86_64 and each Python of pack_for, and must work with numpy<2; "
        "dependencies have the versions that are installed here, which must support the Python of the target; pin "
        "versions that have such wheels and install them here, or install the packages on the server and remove pack: "
        "true",
        code="source.pack",
    )
