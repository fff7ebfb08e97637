"""Changes of the files and directories of a repository."""

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
    """Changes the directory of a model, or a repository."""

_VERSION_NAMES = (
    *("01", "001", "0", "00", "2", "10", "007", "1.5", "2.tmp", "1a", "a1", "v1", "-1", "-0", "+1", "1_0", "1 ", " 1"),
    *("1-old", "1e3", "0x1", "2147483647", "2147483648", "4294967297", "9223372036854775807", "9223372036854775808"),
    *("99999999999999999999", "latest", ".1", ".tmp", "tmp", "\u0661", "\uff11"),
)
_DIRECTORY_NAMES = ("junk", ".git", ".tmp-batch", "batch.bak", "lost+found", "__pycache__", "1", "with space", "größe")


def _all_of(*changes: Change) -> Change:
    """Return a change that makes several changes one after another."""

    def change(directory: Path) -> None:
        for each in changes:
            each(directory)

    return change


def _link(name: str, target: str, directory: Path) -> None:
    (directory / name).symlink_to(target)


def _rename_version(version: str, model: Path) -> None:
    (model / "1").rename(model / version)


def _add_directory(version: str, model: Path) -> None:
    (model / version).mkdir()


def _add_version(version: str, model: Path) -> None:
    shutil.copytree(model / "1", model / version)


def _add_file(name: str, model: Path) -> None:
    (model / name).write_text("stray\n", encoding="utf-8")


def _write(path: str, content: bytes, model: Path) -> None:
    (model / path).parent.mkdir(parents=True, exist_ok=True)
    (model / path).write_bytes(content)


def _remove(path: str, model: Path) -> None:
    target = model / path
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()


def _replace_with_directory(path: str, model: Path) -> None:
    """Replace a file with an empty directory."""
    _remove(path, model)
    (model / path).mkdir()


def _replace_with_fifo(path: str, model: Path) -> None:
    _remove(path, model)
    os.mkfifo(model / path)


def _move_into_directory(model: Path) -> None:
    (model / "1" / "model.onnx").rename(model / "file")
    (model / "1" / "model.onnx").mkdir()
    (model / "file").rename(model / "1" / "model.onnx" / "model.onnx")


def _move_outside(path: str, directory: Path) -> None:
    """Move a file or directory out of the repository, and add a link to it."""
    repository = directory if (directory / "batch").is_dir() else directory.parent
    store = repository.parent / ".outside" / repository.name
    store.mkdir(parents=True)
    moved = store / path.replace("/", "__")
    (directory / path).rename(moved)
    (directory / path).symlink_to(moved.absolute())


def _rename_and_link(path: str, model: Path) -> None:
    """Rename a file or directory, and add a link with the old name."""
    target = model / path
    target.rename(target.with_name("moved"))
    target.symlink_to("moved")


def _replace_with_dangling_link(path: str, model: Path) -> None:
    _remove(path, model)
    (model / path).symlink_to("nosuch")


def _replace_with_link_loop(path: str, model: Path) -> None:
    _remove(path, model)
    (model / path).symlink_to(model / path)


def _move(old: str, new: str, model: Path) -> None:
    (model / new).parent.mkdir(parents=True, exist_ok=True)
    (model / old).rename(model / new)


def _add_second_model(repository: Path) -> None:
    shutil.copytree(repository / "batch", repository / "other")


_VERSION_CHANGES: dict[str, Change] = {
    "version/none": partial(_remove, "1"),
    "version/is_file": _all_of(partial(_remove, "1"), partial(_add_file, "1")),
    "version/linked_inside": partial(_rename_and_link, "1"),
    "version/linked_outside": partial(_move_outside, "1"),
    "version/dangling": partial(_replace_with_dangling_link, "1"),
    "version/loop": partial(_replace_with_link_loop, "1"),
    "version/extra_file": partial(_write, "1/manifest.json", b"{}"),
    "version/extra_directory": partial(_write, "1/sub/file", b""),
    "version/nested": partial(_move, "1/model.onnx", "1/1/model.onnx"),
    "version/model_beside_config": partial(_move, "1/model.onnx", "model.onnx"),
}
"""Changes of the version directory of ``batch``."""

_MODEL_CHANGES: dict[str, Change] = {
    "model/absent": partial(_remove, "1/model.onnx"),
    "model/empty": partial(_write, "1/model.onnx", b""),
    "model/garbage": partial(_write, "1/model.onnx", b"not a model"),
    "model/truncated": partial(_write, "1/model.onnx", ROWS[:-20]),
    "model/lfs_pointer": partial(_write, "1/model.onnx", b"version https://git-lfs.github.com/spec/v1\n"),
    "model/html": partial(_write, "1/model.onnx", b"<html>404</html>"),
    "model/directory": partial(_replace_with_directory, "1/model.onnx"),
    "model/directory_with_model": _move_into_directory,
    "model/linked_outside": partial(_move_outside, "1/model.onnx"),
    "model/linked_inside": partial(_rename_and_link, "1/model.onnx"),
    "model/dangling": partial(_replace_with_dangling_link, "1/model.onnx"),
    "model/loop": partial(_replace_with_link_loop, "1/model.onnx"),
    "model/renamed": partial(_move, "1/model.onnx", "1/net.onnx"),
    "model/capitals": partial(_move, "1/model.onnx", "1/Model.onnx"),
    "model/suffix": partial(_move, "1/model.onnx", "1/model.pt"),
    "model/plan_beside": partial(_write, "1/model.plan", b"x"),
    "model/model_py_beside": partial(_write, "1/model.py", b"raise RuntimeError\n"),
}
"""Changes of the model file of ``batch``."""

_CONFIG_CHANGES: dict[str, Change] = {
    "config/absent": partial(_remove, "config.pbtxt"),
    "config/empty": partial(_write, "config.pbtxt", b""),
    "config/directory": partial(_replace_with_directory, "config.pbtxt"),
    "config/fifo": partial(_replace_with_fifo, "config.pbtxt"),
    "config/linked_outside": partial(_move_outside, "config.pbtxt"),
    "config/linked_inside": partial(_rename_and_link, "config.pbtxt"),
    "config/dangling": partial(_replace_with_dangling_link, "config.pbtxt"),
    "config/loop": partial(_replace_with_link_loop, "config.pbtxt"),
    "config/capitals": partial(_move, "config.pbtxt", "Config.pbtxt"),
    "config/prototxt": partial(_move, "config.pbtxt", "config.prototxt"),
    "config/suffix_txt": partial(_move, "config.pbtxt", "config.pbtxt.txt"),
    "config/in_version": partial(_move, "config.pbtxt", "1/config.pbtxt"),
    "config/second_in_version": partial(_write, "1/config.pbtxt", b"garbage"),
    "config/backup": partial(_write, "config.pbtxt.bak", b"garbage"),
    "configs/garbage": partial(_write, "configs/other.pbtxt", b"garbage"),
    "configs/empty": partial(_add_directory, "configs"),
}
"""Changes of the config of ``batch``."""
_OTHER_CHANGES: dict[str, dict[str, Change]] = {
    "plain": {
        "config/absent": partial(_remove, "config.pbtxt"),
        "model/empty": partial(_write, "1/model.onnx", b""),
    },
    "fixed": {"config/absent": partial(_remove, "config.pbtxt")},
    "scalar": {"config/absent": partial(_remove, "config.pbtxt")},
    "reshape": {"config/absent": partial(_remove, "config.pbtxt")},
    "two": {"config/absent": partial(_remove, "config.pbtxt")},
    "dtypes": {"config/absent": partial(_remove, "config.pbtxt")},
    "filename": {
        "config/absent": partial(_remove, "config.pbtxt"),
        "model_onnx_beside": partial(_write, "1/model.onnx", b"garbage"),
    },
    "versions": {
        "served/empty": partial(_remove, "3/model.onnx"),
        "served/garbage": partial(_write, "3/model.onnx", b"garbage"),
        "served/absent": partial(_remove, "3"),
        "unserved/empty": partial(_remove, "2/model.onnx"),
        "unserved/garbage": partial(_write, "2/model.onnx", b"garbage"),
        "unserved/absent": partial(_remove, "2"),
        "served/other_signature": partial(_write, "3/model.onnx", BASES["two"].models[0].graph),
        "served/file": _all_of(partial(_remove, "3"), partial(_add_file, "3")),
    },
    "external": {
        "absent": partial(_remove, "1/weights.bin"),
        "empty": partial(_write, "1/weights.bin", b""),
        "short": partial(_write, "1/weights.bin", b"1234"),
        "long": partial(_write, "1/weights.bin", bytes(64)),
        "in_model": partial(_move, "1/weights.bin", "weights.bin"),
        "linked_outside": partial(_move_outside, "1/weights.bin"),
        "directory": partial(_replace_with_directory, "1/weights.bin"),
        "dangling": partial(_replace_with_dangling_link, "1/weights.bin"),
    },
    "labels": {
        "file/absent": partial(_remove, "labels.txt"),
        "file/empty": partial(_write, "labels.txt", b""),
        "file/directory": partial(_replace_with_directory, "labels.txt"),
        "file/short": partial(_write, "labels.txt", b"a\n"),
        "file/latin1": partial(_write, "labels.txt", "ä\nö\nü\nß\n".encode("latin-1")),
        "file/in_version": partial(_move, "labels.txt", "1/labels.txt"),
        "file/crlf": partial(_write, "labels.txt", b"a\r\nb\r\nc\r\nd\r\n"),
        "file/linked_outside": partial(_move_outside, "labels.txt"),
        "file/dangling": partial(_replace_with_dangling_link, "labels.txt"),
    },
    "warmupfile": {
        "file/absent": partial(_remove, "warmup/sample"),
        "file/empty": partial(_write, "warmup/sample", b""),
        "file/short": partial(_write, "warmup/sample", bytes(4)),
        "file/one_row": partial(_write, "warmup/sample", bytes(16)),
        "file/long": partial(_write, "warmup/sample", bytes(64)),
        "file/directory": partial(_replace_with_directory, "warmup/sample"),
        "file/next_to_config": partial(_move, "warmup/sample", "sample"),
        "file/in_version": partial(_move, "warmup/sample", "1/warmup/sample"),
        "file/linked_outside": partial(_move_outside, "warmup/sample"),
        "folder_absent": partial(_remove, "warmup"),
    },
    "statefile": {
        "file/absent": partial(_remove, "initial_state/first"),
        "file/empty": partial(_write, "initial_state/first", b""),
        "file/short": partial(_write, "initial_state/first", bytes(4)),
        "file/long": partial(_write, "initial_state/first", bytes(64)),
        "file/directory": partial(_replace_with_directory, "initial_state/first"),
        "file/next_to_config": partial(_move, "initial_state/first", "first"),
    },
    "ensemble": {
        "version/none": partial(_remove, "1"),
        "version/two": partial(_add_directory, "2"),
        "version/file_inside": partial(_write, "1/model.onnx", b"garbage"),
        "config/absent": partial(_remove, "config.pbtxt"),
        "step/absent": partial(_remove, "../second"),
        "step/config_absent": partial(_remove, "../second/config.pbtxt"),
        "step/config_garbage": partial(_write, "../second/config.pbtxt", b"garbage"),
        "step/model_absent": partial(_remove, "../second/1/model.onnx"),
        "step/version_absent": partial(_move, "../second/1", "../second/2"),
        "step/newer_version": lambda model: shutil.copytree(model / "../first/1", model / "../first/2"),
        "step/newer_version_pinned": lambda model: shutil.copytree(model / "../second/1", model / "../second/2"),
        "step/unbatched": partial(_write, "../second/config.pbtxt", PLAIN.encode()),
        "step/smaller_batch": partial(_write, "../second/config.pbtxt", BATCH.replace("8", "4", 1).encode()),
        "step/other_type": partial(_write, "../second/config.pbtxt", BATCH.replace("FP32", "FP16").encode()),
        "step/partial_config": partial(_write, "../second/config.pbtxt", b'backend: "onnxruntime"\n'),
        "step/partial_first_config": partial(_write, "../first/config.pbtxt", b'backend: "onnxruntime"\n'),
        "step/all_partial": _all_of(
            partial(_write, "../first/config.pbtxt", HEAD.encode()),
            partial(_write, "../second/config.pbtxt", HEAD.encode()),
        ),
        "step/optional_missing": partial(
            _write,
            "../second/config.pbtxt",
            (BATCH + 'input { name: "z" data_type: TYPE_FP32 dims: [ 4 ] }\n').encode(),
        ),
    },
}
"""Changes of the other models, by base."""

_ROOT_CHANGES: dict[str, Change] = {
    "directory_with_file": partial(_write, "docs/README.md", b""),
    "directory_with_version": partial(_write, "junk/1/notes", b""),
    "directory_with_model": partial(_write, "junk/1/model.onnx", ROWS),
    "directory_with_garbage_model": partial(_write, "junk/1/model.onnx", b"garbage"),
    "directory_with_config": partial(_write, "junk/config.pbtxt", b'backend: "onnxruntime"\n'),
    "directory_with_empty_config": partial(_write, "junk/config.pbtxt", b""),
    "second_model": _add_second_model,
    "second_model_named_batch": _all_of(
        _add_second_model,
        partial(_write, "other/config.pbtxt", b'name: "batch"\n' + BATCH.encode()),
    ),
    "nested_repository": partial(_move, "batch", "models/batch"),
    "dangling_link": partial(_link, "link", "nosuch"),
    "linked_model": partial(_link, "other", "batch"),
    "linked_junk": partial(_link, "other", "batch/1"),
    "model_outside": partial(_move_outside, "batch"),
    "without_models": partial(_remove, "batch"),
    "model_dotted": partial(_move, "batch", ".batch"),
    "model_dollar": partial(_move, "batch", "a$b"),
    "model_numeric": partial(_move, "batch", "1"),
    "model_version_dots": partial(_move, "batch", "batch.v1.2"),
    "model_colon": partial(_move, "batch", "a:b"),
    "model_percent": partial(_move, "batch", "a%20b"),
    "model_long": partial(_move, "batch", "m" * 200),
    "fifo": lambda root: os.mkfifo(root / "pipe"),
}
"""Changes of the repository of ``batch``, at its root."""


def _version_variants() -> dict[str, Change]:
    """Return changes that rename the version directory, or add another one."""
    changes: dict[str, Change] = {}
    for version in _VERSION_NAMES:
        changes[f"version_renamed/{version}"] = partial(_rename_version, version)
        if version != "1":
            changes[f"version_empty_beside/{version}"] = partial(_add_directory, version)
            changes[f"version_full_beside/{version}"] = partial(_add_version, version)
    return changes


def _models() -> dict[str, dict[str, Change]]:
    """Return changes within the directory of a model, by base and name."""
    files: dict[str, Change] = {
        f"file_beside/{name}": partial(_add_file, name) for name in ("2", "README.md", "model.onnx", ".keep")
    }
    batch = {**_version_variants(), **files, **_VERSION_CHANGES, **_MODEL_CHANGES, **_CONFIG_CHANGES}
    return {"batch": batch, **_OTHER_CHANGES}


def _roots() -> dict[str, Change]:
    """Return changes of the repository of ``batch``, at its root, by name."""
    directories = {f"empty_directory/{name}": partial(_add_directory, name) for name in _DIRECTORY_NAMES}
    files = {f"file/{name}": partial(_add_file, name) for name in ("README.md", "config.pbtxt", ".DS_Store", "1")}
    return {**directories, **files, **_ROOT_CHANGES}


def _in_model(model: str, change: Change, repository: Path) -> None:
    change(repository / model)


def _in_root(change: Change, repository: Path) -> None:
    change(repository)


def layouts() -> list[Variant]:
    """Return all variants of the layout."""
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
