"""Many processes publish into one repository, local or in a store: each version gets its own number, none is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":  # run as a program by the tests below
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import repogen
from tests.unit.stores.killed_commit import register_example

BUILDERS = 8
VERSIONS = 25


@pytest.mark.full
@pytest.mark.parametrize("url", ["local", "s3", "gs", "az"], indirect=True)
def test_many_builders(url: str, tmp_path: Path) -> None:
    """8 processes publish 25 versions each."""
    numbers = publish_all(url, tmp_path, builders=BUILDERS, versions=VERSIONS)
    assert sorted(numbers) == list(range(1, BUILDERS * VERSIONS + 1))
    require_complete(url, BUILDERS * VERSIONS)


@pytest.mark.parametrize("url", ["dir"], indirect=True)
def test_some_builders(url: str, tmp_path: Path) -> None:
    """3 processes publish 4 versions each."""
    assert sorted(publish_all(url, tmp_path, builders=3, versions=4)) == list(range(1, 13))
    require_complete(url, 12)


def publish_all(url: str, directory: Path, *, builders: int, versions: int) -> list[int]:
    """Publish versions from several processes at the same time; return the numbers that these report."""
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, __file__, url, str(versions)]
    processes = [
        subprocess.Popen([*command, str(directory / f"builder-{number}")], stdout=subprocess.PIPE, text=True, cwd=root)
        for number in range(builders)
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * builders
    return [int(line) for output in outputs for line in output.splitlines()]


def require_complete(url: str, versions: int) -> None:
    """Require that the repository has all versions, that they are intact, and that the newest one is served."""
    (model,) = repogen.versions(repository=url).models
    assert ([version.version for version in model.versions], model.served) == ([*range(versions, 0, -1)], (versions,))
    report = repogen.verify(url)
    assert (report.versions, report.findings) == (versions, ())
    assert len({version.manifest.sha256 for version in model.versions if version.manifest is not None}) == versions


def main(url: str, versions: int, directory: Path) -> None:
    """Publish versions, each with other weights, and print their numbers."""
    from tests.support.published import Publisher  # noqa: PLC0415 - the repository's root is not on the path before

    register_example()
    local = Publisher(directory / "repo")
    for number in range(versions):
        local.publish(weights=f"{directory.name} {number}".encode())
        report = repogen.publish("m", source=local.repository, target=url)
        print(report.versions[0].number, flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
