"""Changes of a repository's files and directories."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING

from agreement.bases import BASES, BATCH, HEAD, PLAIN, ROWS
from agreement.values import Variant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[Path], object]
    """What is done to the model's directory, or to the repository."""

_VERSIONS = (
    *("01", "001", "0", "00", "2", "10", "007", "1.5", "2.tmp", "1a", "a1", "v1", "-1", "-0", "+1", "1_0", "1 ", " 1"),
    *("1-old", "1e3", "0x1", "2147483647", "2147483648", "4294967297", "9223372036854775807", "9223372036854775808"),
    *("99999999999999999999", "latest", ".1", ".tmp", "tmp", "\u0661", "\uff11"),
)
_JUNK = ("junk", ".git", ".tmp-batch", "batch.bak", "lost+found", "__pycache__", "1", "with space", "größe")


def _steps(*changes: Change) -> Change:
    """Return the changes one after the other."""

    def change(directory: Path) -> None:
        for each in changes:
            each(directory)

    return change


def _linked(name: str, target: str, directory: Path) -> None:
    (directory / name).symlink_to(target)


def _renamed(version: str, model: Path) -> None:
    (model / "1").rename(model / version)


def _empty_beside(version: str, model: Path) -> None:
    (model / version).mkdir()


def _full_beside(version: str, model: Path) -> None:
    shutil.copytree(model / "1", model / version)


def _file_beside(name: str, model: Path) -> None:
    (model / name).write_text("stray\n", encoding="utf-8")


def _content(path: str, content: bytes, model: Path) -> None:
    (model / path).parent.mkdir(parents=True, exist_ok=True)
    (model / path).write_bytes(content)


def _removed(path: str, model: Path) -> None:
    target = model / path
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()


def _directory(path: str, model: Path) -> None:
    """Put an empty directory in a file's place."""
    _removed(path, model)
    (model / path).mkdir()


def _fifo(path: str, model: Path) -> None:
    _removed(path, model)
    os.mkfifo(model / path)


def _directory_with_model(model: Path) -> None:
    (model / "1" / "model.onnx").rename(model / "file")
    (model / "1" / "model.onnx").mkdir()
    (model / "file").rename(model / "1" / "model.onnx" / "model.onnx")


def _outside(path: str, directory: Path) -> None:
    """Move a file or directory out of the repository, and link to it."""
    repository = directory if (directory / "batch").is_dir() else directory.parent
    store = repository.parent / ".outside" / repository.name
    store.mkdir(parents=True)
    moved = store / path.replace("/", "__")
    (directory / path).rename(moved)
    (directory / path).symlink_to(moved.absolute())


def _inside(path: str, model: Path) -> None:
    """Rename a file or directory, and link to it under its old name."""
    target = model / path
    target.rename(target.with_name("moved"))
    target.symlink_to("moved")


def _dangling(path: str, model: Path) -> None:
    _removed(path, model)
    (model / path).symlink_to("nosuch")


def _loop(path: str, model: Path) -> None:
    _removed(path, model)
    (model / path).symlink_to(model / path)


def _moved(old: str, new: str, model: Path) -> None:
    (model / new).parent.mkdir(parents=True, exist_ok=True)
    (model / old).rename(model / new)


def _models() -> dict[str, dict[str, Change]]:
    """Return changes within the model's directory, by base and name."""
    batch: dict[str, Change] = {}
    for version in _VERSIONS:
        batch[f"version_renamed/{version}"] = partial(_renamed, version)
        if version != "1":
            batch[f"version_empty_beside/{version}"] = partial(_empty_beside, version)
            batch[f"version_full_beside/{version}"] = partial(_full_beside, version)
    batch |= {f"file_beside/{name}": partial(_file_beside, name) for name in ("2", "README.md", "model.onnx", ".keep")}
    batch |= {
        "version/none": partial(_removed, "1"),
        "version/is_file": _steps(partial(_removed, "1"), partial(_file_beside, "1")),
        "version/linked_inside": partial(_inside, "1"),
        "version/linked_outside": partial(_outside, "1"),
        "version/dangling": partial(_dangling, "1"),
        "version/loop": partial(_loop, "1"),
        "version/extra_file": partial(_content, "1/manifest.json", b"{}"),
        "version/extra_directory": partial(_content, "1/sub/file", b""),
        "version/nested": partial(_moved, "1/model.onnx", "1/1/model.onnx"),
        "version/model_beside_config": partial(_moved, "1/model.onnx", "model.onnx"),
        "model/absent": partial(_removed, "1/model.onnx"),
        "model/empty": partial(_content, "1/model.onnx", b""),
        "model/garbage": partial(_content, "1/model.onnx", b"not a model"),
        "model/truncated": partial(_content, "1/model.onnx", ROWS[:-20]),
        "model/lfs_pointer": partial(_content, "1/model.onnx", b"version https://git-lfs.github.com/spec/v1\n"),
        "model/html": partial(_content, "1/model.onnx", b"<html>404</html>"),
        "model/directory": partial(_directory, "1/model.onnx"),
        "model/directory_with_model": _directory_with_model,
        "model/linked_outside": partial(_outside, "1/model.onnx"),
        "model/linked_inside": partial(_inside, "1/model.onnx"),
        "model/dangling": partial(_dangling, "1/model.onnx"),
        "model/loop": partial(_loop, "1/model.onnx"),
        "model/renamed": partial(_moved, "1/model.onnx", "1/net.onnx"),
        "model/capitals": partial(_moved, "1/model.onnx", "1/Model.onnx"),
        "model/suffix": partial(_moved, "1/model.onnx", "1/model.pt"),
        "model/plan_beside": partial(_content, "1/model.plan", b"x"),
        "model/model_py_beside": partial(_content, "1/model.py", b"raise RuntimeError\n"),
        "config/absent": partial(_removed, "config.pbtxt"),
        "config/empty": partial(_content, "config.pbtxt", b""),
        "config/directory": partial(_directory, "config.pbtxt"),
        "config/fifo": partial(_fifo, "config.pbtxt"),
        "config/linked_outside": partial(_outside, "config.pbtxt"),
        "config/linked_inside": partial(_inside, "config.pbtxt"),
        "config/dangling": partial(_dangling, "config.pbtxt"),
        "config/loop": partial(_loop, "config.pbtxt"),
        "config/capitals": partial(_moved, "config.pbtxt", "Config.pbtxt"),
        "config/prototxt": partial(_moved, "config.pbtxt", "config.prototxt"),
        "config/suffix_txt": partial(_moved, "config.pbtxt", "config.pbtxt.txt"),
        "config/in_version": partial(_moved, "config.pbtxt", "1/config.pbtxt"),
        "config/second_in_version": partial(_content, "1/config.pbtxt", b"garbage"),
        "config/backup": partial(_content, "config.pbtxt.bak", b"garbage"),
        "configs/garbage": partial(_content, "configs/other.pbtxt", b"garbage"),
        "configs/empty": partial(_empty_beside, "configs"),
    }
    return {
        "batch": batch,
        "plain": {
            "config/absent": partial(_removed, "config.pbtxt"),
            "model/empty": partial(_content, "1/model.onnx", b""),
        },
        "fixed": {"config/absent": partial(_removed, "config.pbtxt")},
        "scalar": {"config/absent": partial(_removed, "config.pbtxt")},
        "reshape": {"config/absent": partial(_removed, "config.pbtxt")},
        "two": {"config/absent": partial(_removed, "config.pbtxt")},
        "dtypes": {"config/absent": partial(_removed, "config.pbtxt")},
        "filename": {
            "config/absent": partial(_removed, "config.pbtxt"),
            "model_onnx_beside": partial(_content, "1/model.onnx", b"garbage"),
        },
        "versions": {
            "served/empty": partial(_removed, "3/model.onnx"),
            "served/garbage": partial(_content, "3/model.onnx", b"garbage"),
            "served/absent": partial(_removed, "3"),
            "unserved/empty": partial(_removed, "2/model.onnx"),
            "unserved/garbage": partial(_content, "2/model.onnx", b"garbage"),
            "unserved/absent": partial(_removed, "2"),
            "served/other_signature": partial(_content, "3/model.onnx", BASES["two"].models[0].graph),
            "served/file": _steps(partial(_removed, "3"), partial(_file_beside, "3")),
        },
        "external": {
            "absent": partial(_removed, "1/weights.bin"),
            "empty": partial(_content, "1/weights.bin", b""),
            "short": partial(_content, "1/weights.bin", b"1234"),
            "long": partial(_content, "1/weights.bin", bytes(64)),
            "in_model": partial(_moved, "1/weights.bin", "weights.bin"),
            "linked_outside": partial(_outside, "1/weights.bin"),
            "directory": partial(_directory, "1/weights.bin"),
            "dangling": partial(_dangling, "1/weights.bin"),
        },
        "labels": {
            "file/absent": partial(_removed, "labels.txt"),
            "file/empty": partial(_content, "labels.txt", b""),
            "file/directory": partial(_directory, "labels.txt"),
            "file/short": partial(_content, "labels.txt", b"a\n"),
            "file/latin1": partial(_content, "labels.txt", "ä\nö\nü\nß\n".encode("latin-1")),
            "file/in_version": partial(_moved, "labels.txt", "1/labels.txt"),
            "file/crlf": partial(_content, "labels.txt", b"a\r\nb\r\nc\r\nd\r\n"),
            "file/linked_outside": partial(_outside, "labels.txt"),
            "file/dangling": partial(_dangling, "labels.txt"),
        },
        "warmupfile": {
            "file/absent": partial(_removed, "warmup/sample"),
            "file/empty": partial(_content, "warmup/sample", b""),
            "file/short": partial(_content, "warmup/sample", bytes(4)),
            "file/one_row": partial(_content, "warmup/sample", bytes(16)),
            "file/long": partial(_content, "warmup/sample", bytes(64)),
            "file/directory": partial(_directory, "warmup/sample"),
            "file/beside_config": partial(_moved, "warmup/sample", "sample"),
            "file/in_version": partial(_moved, "warmup/sample", "1/warmup/sample"),
            "file/linked_outside": partial(_outside, "warmup/sample"),
            "folder_absent": partial(_removed, "warmup"),
        },
        "statefile": {
            "file/absent": partial(_removed, "initial_state/first"),
            "file/empty": partial(_content, "initial_state/first", b""),
            "file/short": partial(_content, "initial_state/first", bytes(4)),
            "file/long": partial(_content, "initial_state/first", bytes(64)),
            "file/directory": partial(_directory, "initial_state/first"),
            "file/beside_config": partial(_moved, "initial_state/first", "first"),
        },
        "ensemble": {
            "version/none": partial(_removed, "1"),
            "version/two": partial(_empty_beside, "2"),
            "version/file_inside": partial(_content, "1/model.onnx", b"garbage"),
            "config/absent": partial(_removed, "config.pbtxt"),
            "step/absent": partial(_removed, "../second"),
            "step/config_absent": partial(_removed, "../second/config.pbtxt"),
            "step/config_garbage": partial(_content, "../second/config.pbtxt", b"garbage"),
            "step/model_absent": partial(_removed, "../second/1/model.onnx"),
            "step/version_absent": partial(_moved, "../second/1", "../second/2"),
            "step/newer_version": lambda model: shutil.copytree(model / "../first/1", model / "../first/2"),
            "step/newer_version_pinned": lambda model: shutil.copytree(model / "../second/1", model / "../second/2"),
            "step/unbatched": partial(_content, "../second/config.pbtxt", PLAIN.encode()),
            "step/smaller_batch": partial(_content, "../second/config.pbtxt", BATCH.replace("8", "4", 1).encode()),
            "step/other_type": partial(_content, "../second/config.pbtxt", BATCH.replace("FP32", "FP16").encode()),
            "step/partial_config": partial(_content, "../second/config.pbtxt", b'backend: "onnxruntime"\n'),
            "step/partial_first_config": partial(_content, "../first/config.pbtxt", b'backend: "onnxruntime"\n'),
            "step/all_partial": _steps(
                partial(_content, "../first/config.pbtxt", HEAD.encode()),
                partial(_content, "../second/config.pbtxt", HEAD.encode()),
            ),
            "step/optional_missing": partial(
                _content,
                "../second/config.pbtxt",
                (BATCH + 'input { name: "z" data_type: TYPE_FP32 dims: [ 4 ] }\n').encode(),
            ),
        },
    }


def _second_model(repository: Path) -> None:
    shutil.copytree(repository / "batch", repository / "other")


def _roots() -> dict[str, Change]:
    """Return changes of the repository ``batch``, at its root."""
    roots: dict[str, Change] = {f"empty_directory/{name}": partial(_empty_beside, name) for name in _JUNK}
    roots |= {f"file/{name}": partial(_file_beside, name) for name in ("README.md", "config.pbtxt", ".DS_Store", "1")}
    roots |= {
        "directory_with_file": partial(_content, "docs/README.md", b""),
        "directory_with_version": partial(_content, "junk/1/notes", b""),
        "directory_with_model": partial(_content, "junk/1/model.onnx", ROWS),
        "directory_with_garbage_model": partial(_content, "junk/1/model.onnx", b"garbage"),
        "directory_with_config": partial(_content, "junk/config.pbtxt", b'backend: "onnxruntime"\n'),
        "directory_with_empty_config": partial(_content, "junk/config.pbtxt", b""),
        "second_model": _second_model,
        "second_model_named_batch": _steps(
            _second_model,
            partial(_content, "other/config.pbtxt", b'name: "batch"\n' + BATCH.encode()),
        ),
        "nested_repository": partial(_moved, "batch", "models/batch"),
        "dangling_link": partial(_linked, "link", "nosuch"),
        "linked_model": partial(_linked, "other", "batch"),
        "linked_junk": partial(_linked, "other", "batch/1"),
        "model_outside": partial(_outside, "batch"),
        "without_models": partial(_removed, "batch"),
        "model_dotted": partial(_moved, "batch", ".batch"),
        "model_dollar": partial(_moved, "batch", "a$b"),
        "model_numeric": partial(_moved, "batch", "1"),
        "model_version_dots": partial(_moved, "batch", "batch.v1.2"),
        "model_colon": partial(_moved, "batch", "a:b"),
        "model_percent": partial(_moved, "batch", "a%20b"),
        "model_long": partial(_moved, "batch", "m" * 200),
        "fifo": lambda root: os.mkfifo(root / "pipe"),
    }
    return roots


def _in_model(model: str, change: Change, repository: Path) -> None:
    change(repository / model)


def _in_root(change: Change, repository: Path) -> None:
    change(repository)


def layouts() -> list[Variant]:
    """Return all of them."""
    within = [
        Variant(f"{base}/layout/{name}", BASES[base], "layout", partial(_in_model, base, change))
        for base, changes in _models().items()
        for name, change in changes.items()
    ]
    roots = [
        Variant(f"root/{name}", BASES["batch"], "layout", partial(_in_root, change), whole=True)
        for name, change in _roots().items()
    ]
    return within + roots
