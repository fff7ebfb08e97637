"""The Python environment of models' own code in the embedded Triton: NumPy, and the requirements of each model.

Triton's Python stub runs isolated and ignores PYTHONPATH, but it uses the virtual environment of the first ``python3``
on PATH. Each server gets its own environment, whose site-packages directory only lists other directories.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, REQUIREMENTS_FILE
from repogen.artifacts.steps import PINNED
from repogen.errors import ConfigError, ServerError
from repogen.repository.digest import sha256_bytes
from repogen.repository.layout import models_of, triton_version
from repogen.serving import install, wheels
from repogen.serving.admission import refusals, requirements_of
from repogen.triton_config.text.parse import empty_config, parse_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.serving.install import Installation

_LIST = "repogen.pth"
# Bytecode next to a model.py would be published with the version.
_NO_BYTECODE = "import sys; sys.dont_write_bytecode = True"
# With NumPy 2, Triton 2.51's Python backend returns empty tensors and crashes on strings.
_CONSTRAINTS = "numpy<2\n"


def create(installation: Installation, run_dir: Path) -> None:
    """Create the virtual environment of a server, with NumPy, and link the libpython that the stub loads.

    Args:
        installation: Contains the Python and NumPy.
        run_dir: The server's private directory; ``bin`` must be first on PATH, and ``lib`` on the loader's path.
    """
    python = installation.python
    for folder, name, target in (
        ("bin", "python3", python.executable),
        ("lib", f"libpython{python.version}.so.1.0", python.libpython),
    ):
        (run_dir / folder).mkdir()
        (run_dir / folder / name).symlink_to(target)
    settings = {"home": python.executable.parent, "include-system-site-packages": "false", "version": python.version}
    text = "".join(f"{key} = {value}\n" for key, value in settings.items())
    (run_dir / "pyvenv.cfg").write_text(text, encoding="utf-8")
    path_file = _path_file(installation, run_dir)
    path_file.parent.mkdir(parents=True)
    path_file.write_text(f"{_NO_BYTECODE}\n{installation.site}\n", encoding="utf-8")


def provide(installation: Installation, run_dir: Path, requirements: Iterable[str], progress: Progress) -> None:
    """Make packages importable by every model that is loaded from now on.

    Args:
        installation: Contains the Python.
        run_dir: The server's private directory, after ``create``.
        requirements: Packages, each ``name==version``.
        progress: Receives progress events of the installation.

    Raises:
        ServerError: A requirement is not pinned, or pip cannot install them together.
    """
    packages = sorted(set(requirements))
    if not packages:
        return
    with _path_file(installation, run_dir).open("a", encoding="utf-8") as path_file:
        path_file.write(f"{_install(installation, packages, progress)}\n")


def required_by(repository: Path, progress: Progress) -> list[str]:
    """Return the requirements of every Python model of a repository that Triton may load.

    Those of a model with one that is not pinned are left out, with a note: the model may load without them, and the
    other models are not affected.

    Raises:
        MalformedRecordError: A requirements.txt cannot be read.
    """
    requirements = []
    for name in models_of(repository):
        lines = _requirements(repository / name)
        if unpinned := _unpinned(lines):
            progress.note(
                name,
                f"its packages are not installed: the requirement {unpinned[0]!r} in {REQUIREMENTS_FILE} is not pinned "
                "(NAME==VERSION)",
            )
        else:
            requirements += lines
    return requirements


def _unpinned(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if not re.fullmatch(PINNED, line)]


def _requirements(model: Path) -> list[str]:
    try:
        path = model / CONFIG_FILE
        config = parse_file(path, f"{model.name}/{CONFIG_FILE}") if os.path.lexists(path) else empty_config()
        versions = sorted(entry for entry in model.iterdir() if triton_version(entry.name) is not None)
        return [] if refusals(model, config) else requirements_of(model, config, versions)
    except (OSError, ConfigError):  # Triton does not load it
        return []


def _path_file(installation: Installation, run_dir: Path) -> Path:
    return run_dir / "lib" / f"python{installation.python.version}" / "site-packages" / _LIST


def _install(installation: Installation, packages: list[str], progress: Progress) -> Path:
    """Return the directory with the packages and their dependencies; installs it atomically, once."""
    if unpinned := _unpinned(packages):
        raise ServerError(
            f"the requirement {unpinned[0]!r} is not pinned",
            "write NAME==VERSION, so that the tested version is the one that is installed elsewhere",
            code="server.requirements-file",
        )
    digest = sha256_bytes("\n".join([*packages, _CONSTRAINTS]).encode())[:12]
    final = installation.root / f"packages-{installation.python.tag}-{digest}"
    with install.exclusive(installation.root), install.part(final, {"requirements": digest}) as part:
        if part is not None:
            progress.step("", f"installing {', '.join(packages)}")
            _pip_install(installation, packages, part)
    return final


def _pip_install(installation: Installation, packages: list[str], part: Path) -> None:
    part = part.absolute()
    constraints = part.parent / "constraints.txt"
    constraints.write_text(_CONSTRAINTS, encoding="utf-8")
    arguments = [
        *("install", "--target", str(part), "--no-compile", *wheels.platform_flags(installation.python.tag)),
        *("--constraint", str(constraints), *packages),
    ]
    outcome = wheels.run_pip(arguments, part.parent)
    if outcome.returncode != 0:
        raise ServerError(
            f"pip could not install {', '.join(packages)} for the embedded Triton:\n{outcome.stderr.strip()}",
            f"the packages need wheels for Python {installation.python.version} and must work with numpy<2; or use a "
            "server that has them (--server HOST:PORT)",
            code="server.requirements",
        )
