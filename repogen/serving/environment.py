"""The Python that models' own code runs in under the embedded Triton: NumPy, and the requirements of each model.

Triton's Python stub runs isolated: PYTHONPATH means nothing to it. But it takes for itself the first ``python3`` on
PATH, and so a virtual environment around that: one for each server, whose site-packages is a list of directories.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from typing import TYPE_CHECKING

from filelock import FileLock

from repogen.artifacts.steps import PINNED
from repogen.errors import ServerError
from repogen.repository.digest import sha256_bytes
from repogen.repository.layout import requirements_in
from repogen.serving import install, wheels

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.serving.install import Installation

_LIST = "repogen.pth"
# Beside a model.py, where it would be published with the version that is tested.
_NO_BYTECODE = "import sys; sys.dont_write_bytecode = True"
# With NumPy 2, Triton 2.51's Python backend answers with empty tensors, and dies of strings.
_CONSTRAINTS = "numpy<2\n"


def lay_out(installation: Installation, run_dir: Path) -> None:
    """Make a virtual environment of the chosen Python, with NumPy in it, and its libpython the one that is loaded.

    Args:
        installation: Whose Python and NumPy.
        run_dir: The server's private directory: ``bin`` goes first on PATH, ``lib`` on the loader's path.
    """
    python = installation.python
    for folder, name, target in (
        ("bin", "python3", python.executable),
        ("lib", f"libpython{python.version}.so.1.0", python.libpython),
    ):
        (run_dir / folder).mkdir()
        (run_dir / folder / name).symlink_to(target)
    told = {"home": python.executable.parent, "include-system-site-packages": "false", "version": python.version}
    (run_dir / "pyvenv.cfg").write_text("".join(f"{key} = {value}\n" for key, value in told.items()), encoding="utf-8")
    listed = _listed(installation, run_dir)
    listed.parent.mkdir(parents=True)
    listed.write_text(f"{_NO_BYTECODE}\n{installation.site}\n", encoding="utf-8")


def provide(installation: Installation, run_dir: Path, requirements: Iterable[str], progress: Progress) -> None:
    """Make packages importable by every model that is loaded from now on.

    Args:
        installation: Whose Python they are for.
        run_dir: Of the server, laid out.
        requirements: Each ``name==version``.
        progress: Told of the installation.

    Raises:
        ServerError: One is not pinned, or pip can't install them together.
    """
    wanted = sorted(set(requirements))
    if not wanted:
        return
    with _listed(installation, run_dir).open("a", encoding="utf-8") as listed:
        listed.write(f"{_installed(installation, wanted, progress)}\n")


def required_by(repository: Path) -> list[str]:
    """Return what the models of a repository require.

    Raises:
        MalformedRecordError: A requirements.txt can't be read.
    """
    return [line for path in sorted(repository.glob("*/[0-9]*/")) for line in requirements_in(path)]


def _listed(installation: Installation, run_dir: Path) -> Path:
    return run_dir / "lib" / f"python{installation.python.version}" / "site-packages" / _LIST


def _installed(installation: Installation, wanted: list[str], progress: Progress) -> Path:
    """Return the directory that holds ``wanted`` and all they need; installed once, and whole or not at all."""
    if unpinned := [line for line in wanted if not re.fullmatch(PINNED, line)]:
        raise ServerError(
            f"the requirement {unpinned[0]!r} is not pinned",
            "write NAME==VERSION: what was tested is then what is installed elsewhere",
            code="server.requirements-file",
        )
    digest = sha256_bytes("\n".join([*wanted, _CONSTRAINTS]).encode())[:12]
    final = installation.root / f"packages-{installation.python.tag}-{digest}"
    with FileLock(installation.root / "install.lock"), install.part(final, {"requirements": digest}) as part:
        if part is not None:
            progress.step("", f"installing {', '.join(wanted)}")
            _pip(installation, wanted, part)
    return final


def _pip(installation: Installation, wanted: list[str], part: Path) -> None:
    constraints = part.parent / "constraints.txt"
    constraints.write_text(_CONSTRAINTS, encoding="utf-8")
    command = [
        *(wheels.python_with_pip(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--target", str(part), "--no-compile", *wheels.platform_flags(installation.python.tag)),
        *("--constraint", str(constraints), *wanted),
    ]
    environment = os.environ | {"TMPDIR": str(part.parent)}
    with contextlib.suppress(KeyError):
        del environment["PIP_CONSTRAINT"]
    outcome = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if outcome.returncode != 0:
        raise ServerError(
            f"pip could not install {', '.join(wanted)} for the embedded Triton:\n{outcome.stderr.strip()}",
            "wheels only, for Python "
            f"{installation.python.version}, beside numpy<2; or use a server that has them (--server HOST:PORT)",
            code="server.requirements",
        )
