"""Writes repogen/data/embedded.lock.json: the wheels of the embedded Triton, each with its SHA-256.

Run it after triton_releases.csv names a new ONNX Runtime: ``python tools/lock_embedded.py``. It queries the index that
pip is configured for, through pip itself (a few pages), and downloads no wheel. pip's inner modules are not a public
API: this runs with pip 23.2.
"""

from __future__ import annotations

import json
from pathlib import Path

from pip._internal.commands import create_command
from pip._internal.commands.download import DownloadCommand
from pip._internal.models.target_python import TargetPython

from repogen.targets import targets

LOCK = Path(__file__).resolve().parent.parent / "repogen/data/embedded.lock.json"
TRITON = ("nvidia-pytriton", "0.7.0")
TRITON_SERVER = "2.51.0"
NUMPY = "1.26.4"
MINORS = (10, 11, 12)
PERF_ANALYZER = ("tritonclient", "2.51.0")
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in range(35, 16, -1)),
    *("manylinux2014_x86_64", "manylinux1_x86_64"),
]


def wheels(project: str, versions: set[str], minor: int) -> dict[str, dict[str, str | int]]:
    """Return ``{version: {"file", "sha256", "size"}}`` of the wheels of ``project`` that CPython 3.``minor`` accepts.

    The size, which progress bars show, costs one HEAD request per wheel.
    """
    command = create_command("download")
    if not isinstance(command, DownloadCommand):
        raise TypeError(command)
    options, _ = command.parse_args(["--only-binary=:all:", "--quiet", project])
    python = TargetPython(PLATFORMS, (3, minor), [f"cp3{minor}", "none"], "cp")
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session, target_python=python)  # noqa: SLF001 - see above
        records: dict[str, dict[str, str | int]] = {}
        for candidate in sorted(finder.find_all_candidates(project), key=lambda each: each.link.filename):
            link, version = candidate.link, str(candidate.version)
            if version in versions and link.hash_name == "sha256":
                size = int(session.head(link.url_without_fragment).headers["Content-Length"])
                records[version] = {"file": link.filename, "sha256": str(link.hash), "size": size}
    return records


def pinned(project: str, version: str) -> dict[str, str | int]:
    """Return the wheel of one version that runs on every supported Python."""
    return wheels(project, {version}, MINORS[0])[version]


def main() -> None:
    """Look up every wheel, and write the lock file."""
    runtimes = {target.onnxruntime for target in targets().values()}
    lock: dict[str, object] = {
        "tritonserver": {"version": TRITON_SERVER, "wheel": pinned(*TRITON)},
        "perf_analyzer": {"version": PERF_ANALYZER[1], "wheel": pinned(*PERF_ANALYZER)},
        "numpy": {f"cp3{minor}": wheels("numpy", {NUMPY}, minor)[NUMPY] for minor in MINORS},
        "onnxruntime": {f"cp3{minor}": wheels("onnxruntime", runtimes, minor) for minor in MINORS},
    }
    LOCK.write_text(json.dumps(lock, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {LOCK.name}")


if __name__ == "__main__":
    main()
