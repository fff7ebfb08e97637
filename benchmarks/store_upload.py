"""Publishes a large version from a directory to S3, next to s3fs alone and a copy on the disk: MB/s and memory.

S3 is moto's server on this machine, which keeps objects in memory, so the machine needs about three times the size.
Each program runs in a process of its own, whose resident memory is sampled. The upload alone needs constant memory;
publishing from a directory also parses model.onnx before, as with a local target, which needs memory for its size.

Usage: python benchmarks/store_upload.py [--megabytes 2048] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from measure import measure, middle

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # tests.support

from repogen.reporting.table import table

MEGABYTE = 2**20
PROGRAMS = ("cp", "s3fs", "repogen upload", "repogen publish")


def main() -> None:
    """Measure each program in each round, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    from tests.support.moto_s3 import create_bucket, s3_server  # noqa: PLC0415 - not in the measured processes

    with tempfile.TemporaryDirectory() as directory, s3_server() as environment:
        os.environ.update(environment)
        source = make_repository(Path(directory), arguments.megabytes)
        results: dict[str, list[tuple[float, float]]] = {program: [] for program in PROGRAMS}
        for round_number in range(arguments.rounds):
            for program in PROGRAMS:
                bucket = f"{program.replace(' ', '-')}-{round_number}"
                create_bucket(environment, bucket)
                results[program].append(measured(program, source, bucket))
    rows = [
        (
            program,
            middle([arguments.megabytes / seconds for seconds, _ in values]),
            f"{max(memory for _, memory in values):.0f}",
        )
        for program, values in results.items()
    ]
    print(table(("program", "MB/s", "memory, MB"), rows))


def make_repository(directory: Path, megabytes: int) -> Path:
    """Publish a version of this size locally; return the repository."""
    from tests.support.published import Publisher  # noqa: PLC0415 - not in the measured processes

    local = Publisher(directory / "local" / "repo")
    local.publish("m", os.urandom(MEGABYTE) * megabytes)
    return local.repository


def measured(program: str, source: Path, bucket: str) -> tuple[float, float]:
    """Run a program; return its seconds and the MB of its largest resident set."""
    command = [sys.executable, __file__, "--child", program, str(source), bucket]
    run = measure(command)
    return float(run.stdout.splitlines()[-1]), run.rss


def child(program: str, source: str, bucket: str) -> None:
    """Upload or copy, and print seconds; imports are not part of the time."""
    file = Path(source, "m", "1", "model.onnx")
    if program == "cp":
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as directory:
            shutil.copyfile(file, Path(directory, "copy"))
            seconds = time.perf_counter() - start
    elif program == "s3fs":
        from s3fs import S3FileSystem  # noqa: PLC0415 - each process imports what it measures

        filesystem = S3FileSystem()
        start = time.perf_counter()
        filesystem.put_file(str(file), f"{bucket}/model.onnx")
        seconds = time.perf_counter() - start
    elif program == "repogen upload":
        from repogen.stores.s3 import S3  # noqa: PLC0415 - as above

        store = S3().open(bucket)
        start = time.perf_counter()
        store.upload(file, "model.onnx", lambda _: None)
        seconds = time.perf_counter() - start
    else:
        import repogen.stores.s3  # noqa: PLC0415 - as above
        import repogen.versions.transfer  # noqa: PLC0415 - the same

        start = time.perf_counter()
        repogen.publish("m", source=source, target=f"s3://{bucket}/models")
        seconds = time.perf_counter() - start
    print(seconds)


if __name__ == "__main__":
    main()
