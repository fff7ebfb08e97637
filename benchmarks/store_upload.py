"""Publishes a large version to a directory and to S3, next to copies of its file: MB/s, memory, and bytes of I/O.

S3 is moto's server on this machine. Each program runs in a process of its own, whose resident memory is sampled; a
program with constant memory has the same figure for each size. The bytes that a process reads from files and writes to
files are shown as multiples of the size. A publish writes the file to the disk (fsync), as `cp, synced` does.

The machine needs free memory, and free disk space in TMPDIR, of about four times the largest size.

Usage: python benchmarks/store_upload.py [--megabytes 256,2048] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from measure import measure, middle

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # tests.support

from repogen.reporting.table import table

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE = 2**20
LOCAL = ("cp", "cp, synced", "repogen publish to a directory")
REMOTE = ("s3fs", "repogen upload", "repogen publish to S3")
HEADINGS = ("MB", "program", "MB/s", "memory, MB", "reads", "writes")


@dataclass(frozen=True)
class Result:
    """One run of a program.

    Attributes:
        seconds: Its time, without imports.
        memory: MB of its largest resident set.
        reads: Bytes that it read from files, as a multiple of the size.
        writes: Bytes that it wrote to files.
    """

    seconds: float
    memory: float
    reads: float
    writes: float


def main() -> None:
    """Measure each program in each round, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", default="256,2048", help="sizes, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    from tests.support.moto_s3 import s3_server  # noqa: PLC0415 - not in the measured processes

    rows: list[tuple[str, ...]] = []
    with s3_server() as environment:
        os.environ.update(environment)
        for megabytes in map(int, arguments.megabytes.split(",")):
            rows += size_rows(megabytes, arguments.rounds, environment)
    print(table(HEADINGS, rows))


def size_rows(megabytes: int, rounds: int, environment: dict[str, str]) -> list[tuple[str, ...]]:
    """Return the rows of one size."""
    results: dict[str, list[Result]] = {program: [] for program in (*LOCAL, *REMOTE)}
    with tempfile.TemporaryDirectory() as directory:
        source = make_repository(Path(directory), megabytes)
        for _ in range(rounds):
            for program, values in results.items():
                values.append(measured(program, source, environment))
    return [row(megabytes, program, values) for program, values in results.items()]


def row(megabytes: int, program: str, values: list[Result]) -> tuple[str, ...]:
    """Return the row of a program."""
    return (
        *(str(megabytes), program, middle([megabytes / each.seconds for each in values])),
        f"{max(each.memory for each in values):.0f}",
        *(f"{median(getattr(each, name) for each in values):.2f}" for name in ("reads", "writes")),
    )


def make_repository(directory: Path, megabytes: int) -> Path:
    """Publish a version of this size locally; return the repository."""
    from tests.support.published import Publisher  # noqa: PLC0415 - not in the measured processes

    local = Publisher(directory / "local" / "repo")
    local.publish("m", os.urandom(MEGABYTE) * megabytes)
    return local.repository


def measured(program: str, source: Path, environment: dict[str, str]) -> Result:
    """Run a program, and remove what it wrote."""
    from repogen.stores.s3 import S3  # noqa: PLC0415 - not in the measured processes
    from tests.support.moto_s3 import create_bucket  # noqa: PLC0415 - the same

    bucket = f"bucket-{os.urandom(8).hex()}"
    with tempfile.TemporaryDirectory(dir=source.parent) as directory:
        if program in REMOTE:
            create_bucket(environment, bucket)
        run = measure([sys.executable, __file__, "--child", program, str(source), f"{directory}/{bucket}"])
        seconds, read, written = json.loads(run.stdout.splitlines()[-1])
    if program in REMOTE:
        store = S3().open(bucket)
        store.delete([each.key for each in store.list("")])
    size = (source / "m" / "1" / "model.onnx").stat().st_size
    return Result(seconds, run.rss, read / size, written / size)


def child(program: str, source: str, target: str) -> None:
    """Upload or copy; print the seconds, and the bytes that were read and written. Imports are not measured.

    Args:
        program: What to run.
        source: The repository.
        target: The path of the copy; its last part is also the name of the bucket.
    """
    file, bucket = Path(source, "m", "1", "model.onnx"), Path(target).name
    if program in LOCAL:
        import repogen.versions.transfer  # noqa: PLC0415 - each process imports what it measures

        programs: dict[str, Callable[[], object]] = {
            "cp": lambda: shutil.copyfile(file, target),
            "cp, synced": lambda: copy_synced(file, target),
            "repogen publish to a directory": lambda: repogen.publish("m", source=source, target=target),
        }
    else:
        from s3fs import S3FileSystem  # noqa: PLC0415 - as above

        import repogen.versions.transfer  # noqa: PLC0415 - as above
        from repogen.stores.s3 import S3  # noqa: PLC0415 - as above

        filesystem, store = S3FileSystem(), S3().open(bucket)
        programs = {
            "s3fs": lambda: filesystem.put_file(str(file), f"{bucket}/model.onnx"),
            "repogen upload": lambda: store.upload(file, "model.onnx", lambda _: None),
            "repogen publish to S3": lambda: repogen.publish("m", source=source, target=f"s3://{bucket}/models"),
        }
    before, start = transferred(), time.perf_counter()
    programs[program]()
    seconds, after = time.perf_counter() - start, transferred()
    print(json.dumps([seconds, after[0] - before[0], after[1] - before[1]]))


def copy_synced(file: Path, target: str) -> None:
    """Copy a file, and write it to the disk."""
    shutil.copyfile(file, target)
    with open(target, "rb") as stream:  # noqa: PTH123 - a path as text
        os.fsync(stream.fileno())


def transferred() -> tuple[int, int]:
    """Return the bytes that this process has read from files and written to files; those of sockets do not count."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    figures = dict(line.split(": ") for line in lines)
    return int(figures["rchar"]), int(figures["wchar"])


if __name__ == "__main__":
    main()
