"""Writes repogen/data/model_config_fields.csv: the fields of ModelConfig that each Triton release supports.

Run it when triton_releases.csv lists a new release: ``python tools/model_config_fields.py``. For each release, it
downloads the small tritonclient wheel without shared libraries, and reads the serialized descriptor in it. ``--check``
writes nothing, and exits with 1 if the shipped file differs.

Each row is a field of a message, or a value of an enum, that is reachable from ModelConfig. ``since`` is the first
release that has it (for the oldest release, possibly an earlier one), and ``until`` is the last; it is empty if the
newest release has it. Map entries are not separate messages, and the fields of a oneof are ordinary fields. Only names
are compared, not numbers or types.
"""

from __future__ import annotations

import argparse
import ast
import csv
import difflib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DATA = Path(__file__).resolve().parent.parent / "repogen/data"
RELEASES = DATA / "triton_releases.csv"
FIELDS = DATA / "model_config_fields.csv"
HEADER = ("message", "field", "since", "until")
MODULE = "tritonclient/grpc/model_config_pb2.py"
PACKAGE = "inference"
ROOT = "ModelConfig"

Name = tuple[str, str]
"""A message or enum without its package, and a field or value of it."""


def download(version: str, directory: Path) -> Path:
    """Return tritonclient's wheel of ``version``, or of the nearest lower version that is published.

    A version that is followed by a build number (2.37.0.9383150) counts as that version.
    """
    major, minor, patch = map(int, version.split("."))
    below = f"tritonclient<{major}.{minor}.{patch + 1}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "download", "--quiet"]
    wheels = ["--no-deps", "--only-binary=:all:", "--platform=any", f"--dest={directory}"]
    outcome = subprocess.run([*pip, *wheels, below], capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise SystemExit(f"pip cannot download {below}:\n{outcome.stderr}")
    (wheel,) = directory.glob("tritonclient-*.whl")
    return wheel


def descriptor(wheel: Path) -> FileDescriptorProto:
    """Return the descriptor of model_config.proto in ``wheel``.

    The generated module is not imported, because all its versions register the same names. In every layout that protoc
    has used, the descriptor is the longest bytes literal of the module; the others are options.
    """
    with zipfile.ZipFile(wheel) as archive:
        # A wheel has its modules under NAME.data/purelib/ or at the top.
        (member,) = (name for name in archive.namelist() if f"/{name}".endswith(f"/{MODULE}"))
        tree = ast.parse(archive.read(member))
    literals = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    file = FileDescriptorProto.FromString(max((each for each in literals if isinstance(each, bytes)), key=len))
    if (file.name, file.package) != ("model_config.proto", PACKAGE):
        raise SystemExit(f"{wheel.name}: {member} contains {file.name!r} of package {file.package!r}")
    return file


def qualified(
    messages: Sequence[DescriptorProto], enums: Sequence[EnumDescriptorProto], prefix: str
) -> Iterator[tuple[str, DescriptorProto | EnumDescriptorProto]]:
    """Yield every message and enum, including nested ones, with its full name."""
    for enum in enums:
        yield f"{prefix}.{enum.name}", enum
    for message in messages:
        name = f"{prefix}.{message.name}"
        yield name, message
        yield from qualified(message.nested_type, message.enum_type, name)


def fields(file: FileDescriptorProto) -> set[Name]:
    """Return every field and enum value that is reachable from ModelConfig."""
    types = dict(qualified(file.message_type, file.enum_type, f".{PACKAGE}"))
    names: set[Name] = set()
    pending, visited = [f".{PACKAGE}.{ROOT}"], set[str]()
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        kind = types[name]
        short = name.removeprefix(f".{PACKAGE}.")
        if isinstance(kind, EnumDescriptorProto):
            names |= {(short, value.name) for value in kind.value}
            continue
        pending += [field.type_name for field in kind.field if field.type_name]
        if not kind.options.map_entry:
            names |= {(short, field.name) for field in kind.field}
    return names


def row(name: Name, releases: dict[str, set[Name]]) -> tuple[str, str, str, str]:
    """Return the row of one field, given the fields of every release, oldest first."""
    order = list(releases)
    indexes = [index for index, release in enumerate(order) if name in releases[release]]
    first, last = indexes[0], indexes[-1]
    if len(indexes) != last - first + 1:
        raise SystemExit(f"{'.'.join(name)} was removed and added again, which since and until cannot express")
    return (*name, order[first], "" if last == len(order) - 1 else order[last])


def read_releases() -> dict[str, set[Name]]:
    """Download and read every release in triton_releases.csv; print those without a wheel of their own version."""
    with RELEASES.open(encoding="utf-8", newline="") as file:
        versions = {each["release"]: each["server_version"] for each in csv.DictReader(file)}
    releases: dict[str, set[Name]] = {}
    for release, version in versions.items():
        with tempfile.TemporaryDirectory() as directory:
            wheel = download(version, Path(directory))
            releases[release] = fields(descriptor(wheel))
        wheel_version = wheel.name.split("-")[1]
        if wheel_version != version:
            print(f"{release}: tritonclient {version} was not published; read {wheel_version} instead")
    return releases


def table(releases: dict[str, set[Name]]) -> str:
    """Return the text of the CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(row(name, releases) for name in sorted(set[Name]().union(*releases.values())))
    return text.getvalue()


def main() -> int:
    """Write the file, or compare it with the shipped one; return the exit code."""
    parser = argparse.ArgumentParser(description="Write repogen/data/model_config_fields.csv.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file differs")
    check = parser.parse_args().check
    new = table(read_releases())
    if not check:
        FIELDS.write_bytes(new.encode())
        print(f"wrote {FIELDS.name}")
        return 0
    old = FIELDS.read_bytes().decode() if FIELDS.exists() else ""
    if old == new:
        print(f"{FIELDS.name} is up to date")
        return 0
    sys.stdout.writelines(
        difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), "shipped", "published", n=0)
    )
    print(f"{FIELDS.name} differs: run `python tools/{Path(__file__).name}`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
