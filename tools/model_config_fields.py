"""Writes repogen/data/model_config_fields.csv: which fields of ModelConfig each Triton release knows.

Run it after triton_releases.csv names a new release: ``python tools/model_config_fields.py``. It downloads a wheel of
tritonclient for each release, the small ones without shared libraries, and reads the serialized descriptor in each.
``--check`` writes nothing and exits with 1 when the shipped file differs.

A row is a field of a message, or a value of an enum, that ModelConfig reaches. ``since`` is the first release with it
(the first of all: or an earlier one), ``until`` the last, empty while the newest has it. Map entries are not
messages of their own, and the fields of a oneof are ordinary fields. The names count alone: not their numbers or types.
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

    A version with a build number behind it (2.37.0.9383150) counts as that version.
    """
    major, minor, patch = map(int, version.split("."))
    below = f"tritonclient<{major}.{minor}.{patch + 1}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "download", "--quiet"]
    wheels = ["--no-deps", "--only-binary=:all:", "--platform=any", f"--dest={directory}"]
    done = subprocess.run([*pip, *wheels, below], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pip cannot download {below}:\n{done.stderr}")
    (wheel,) = directory.glob("tritonclient-*.whl")
    return wheel


def descriptor(wheel: Path) -> FileDescriptorProto:
    """Return the descriptor of model_config.proto in ``wheel``.

    The generated module is not imported: all versions of it register the same names. The descriptor is its longest
    bytes literal, in every layout that protoc has had; the others are options.
    """
    with zipfile.ZipFile(wheel) as archive:
        # The wheels keep their modules under NAME.data/purelib/ or at the top.
        (member,) = (name for name in archive.namelist() if f"/{name}".endswith(f"/{MODULE}"))
        tree = ast.parse(archive.read(member))
    literals = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    file = FileDescriptorProto.FromString(max((each for each in literals if isinstance(each, bytes)), key=len))
    if (file.name, file.package) != ("model_config.proto", PACKAGE):
        raise SystemExit(f"{wheel.name}: {member} holds {file.name!r} of package {file.package!r}")
    return file


def named(
    messages: Sequence[DescriptorProto], enums: Sequence[EnumDescriptorProto], prefix: str
) -> Iterator[tuple[str, DescriptorProto | EnumDescriptorProto]]:
    """Yield every message and enum, the nested ones too, with its full name."""
    for enum in enums:
        yield f"{prefix}.{enum.name}", enum
    for message in messages:
        name = f"{prefix}.{message.name}"
        yield name, message
        yield from named(message.nested_type, message.enum_type, name)


def fields(file: FileDescriptorProto) -> set[Name]:
    """Return every field and enum value that ModelConfig reaches."""
    types = dict(named(file.message_type, file.enum_type, f".{PACKAGE}"))
    found: set[Name] = set()
    pending, seen = [f".{PACKAGE}.{ROOT}"], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        kind = types[name]
        short = name.removeprefix(f".{PACKAGE}.")
        if isinstance(kind, EnumDescriptorProto):
            found |= {(short, value.name) for value in kind.value}
            continue
        pending += [field.type_name for field in kind.field if field.type_name]
        if not kind.options.map_entry:
            found |= {(short, field.name) for field in kind.field}
    return found


def row(name: Name, releases: dict[str, set[Name]]) -> tuple[str, str, str, str]:
    """Return the row of one field, given the fields of every release, oldest first."""
    order = list(releases)
    having = [place for place, release in enumerate(order) if name in releases[release]]
    first, last = having[0], having[-1]
    if len(having) != last - first + 1:
        raise SystemExit(f"{'.'.join(name)} was gone for a while and came back: since and until cannot say that")
    return (*name, order[first], "" if last == len(order) - 1 else order[last])


def read_releases() -> dict[str, set[Name]]:
    """Download and read every release of triton_releases.csv; say which of them have no wheel of their own."""
    with RELEASES.open(encoding="utf-8", newline="") as file:
        versions = {each["release"]: each["server_version"] for each in csv.DictReader(file)}
    releases: dict[str, set[Name]] = {}
    for release, version in versions.items():
        with tempfile.TemporaryDirectory() as directory:
            wheel = download(version, Path(directory))
            releases[release] = fields(descriptor(wheel))
        taken = wheel.name.split("-")[1]
        if taken != version:
            print(f"{release}: no tritonclient {version} is published, read {taken}")
    return releases


def table(releases: dict[str, set[Name]]) -> str:
    """Return the text of the CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(row(name, releases) for name in sorted(set[Name]().union(*releases.values())))
    return text.getvalue()


def main() -> int:
    """Write the file, or compare it, and return the exit code."""
    parser = argparse.ArgumentParser(description="Write repogen/data/model_config_fields.csv.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the file differs")
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
