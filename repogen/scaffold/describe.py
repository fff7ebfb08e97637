"""Tells what a path is, and reads what can be known of it without running or unpickling anything."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.scaffold.archives import describe_program, describe_script
from repogen.scaffold.code import describe_callable
from repogen.scaffold.huggingface import describe_directory
from repogen.scaffold.onnx_file import describe_onnx

if TYPE_CHECKING:
    from repogen.scaffold.description import Found

_CALLABLE = re.compile(r"(?P<module>.+):(?P<attribute>[^\W\d][\w.]*)")
_WEIGHTS = {".safetensors", ".pth", ".pt", ".ckpt"}
_KINDS = (
    "an .onnx file, a Hugging Face directory (with config.json), a .pt2 of torch.export, a TorchScript archive, "
    "or file.py:callable"
)


def describe(path: str, directory: Path) -> Found:
    """Find out what a model is.

    Args:
        path: A file or directory, as seen from here; or ``file.py:callable`` or ``module:callable``.
        directory: Where the spec is to be; its paths are written relative to it.

    Raises:
        SpecError: It is not there, or nothing that repogen takes.
        MissingExtraError: What reads such a file is not installed.
    """
    place = Path(path)
    named = _CALLABLE.fullmatch(path)
    if not place.exists() and named is not None:
        return describe_callable(named["module"], named["attribute"], directory)
    if not place.exists():
        raise _refused(path, "is not there")
    shown = os.path.relpath(place, directory)
    return describe_directory(place, shown) if place.is_dir() else _describe_file(place, shown)


def _describe_file(path: Path, shown: str) -> Found:
    if path.suffix == ".onnx":
        return describe_onnx(path, shown)
    if path.suffix == ".py":
        raise _refused(str(path), f"is a file of code: say which callable makes the model, {path}:build")
    names = _members(path)
    if any(name.endswith("models/model.json") for name in names):
        return describe_program(path, shown)
    if any(name.endswith("/constants.pkl") for name in names):
        return describe_script(path, shown)
    if any(name.endswith("data.pkl") for name in names) or path.suffix in _WEIGHTS:
        raise _refused(str(path), "holds weights, and no model: name the callable that makes it, models.py:build")
    raise _refused(str(path), "is nothing that repogen takes")


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


def _refused(path: str, what: str) -> SpecError:
    return SpecError(f"{path} {what}", f"--from takes {_KINDS}", code="init.from")
