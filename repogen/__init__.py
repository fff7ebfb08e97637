"""repogen: from a trained PyTorch model to a verified, versioned Triton model repository.

>>> import repogen
>>> print(*sorted(set(repogen.__all__) - {"__version__"}))  # doctest: +NORMALIZE_WHITESPACE
as_dict bench build check deploy diff follow history load_spec plan promote prune publish report rollback
rollback_alias sign smoke sync tune verify versions

Every function is imported on first use: ``import repogen`` alone imports nothing heavy.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from repogen.version import __version__

if TYPE_CHECKING:
    from repogen.api.bench import bench
    from repogen.api.build import build
    from repogen.api.check import check
    from repogen.api.deploy import deploy
    from repogen.api.plan import plan
    from repogen.api.registry import follow, history, promote, rollback_alias, sync
    from repogen.api.report import report
    from repogen.api.repository import diff, prune, publish, rollback, sign, verify, versions
    from repogen.api.smoke import smoke
    from repogen.api.spec import load_spec
    from repogen.api.tune import tune
    from repogen.reporting.json import as_dict

# ONNX Runtime reads this when it is imported. It would write a file for its telemetry, `.ses`, into the directory of
# temporary files, and follow a symlink that another user made there.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "__version__",
    "as_dict",
    "bench",
    "build",
    "check",
    "deploy",
    "diff",
    "follow",
    "history",
    "load_spec",
    "plan",
    "promote",
    "prune",
    "publish",
    "report",
    "rollback",
    "rollback_alias",
    "sign",
    "smoke",
    "sync",
    "tune",
    "verify",
    "versions",
]

_MODULES = {
    "as_dict": "repogen.reporting.json",
    "bench": "repogen.api.bench",
    "build": "repogen.api.build",
    "check": "repogen.api.check",
    "deploy": "repogen.api.deploy",
    "diff": "repogen.api.repository",
    "follow": "repogen.api.registry",
    "history": "repogen.api.registry",
    "load_spec": "repogen.api.spec",
    "plan": "repogen.api.plan",
    "promote": "repogen.api.registry",
    "prune": "repogen.api.repository",
    "publish": "repogen.api.repository",
    "report": "repogen.api.report",
    "rollback": "repogen.api.repository",
    "rollback_alias": "repogen.api.registry",
    "sign": "repogen.api.repository",
    "smoke": "repogen.api.smoke",
    "sync": "repogen.api.registry",
    "tune": "repogen.api.tune",
    "verify": "repogen.api.repository",
    "versions": "repogen.api.repository",
}


class _Repogen(ModuleType):
    """This module: ``repogen.build`` is the function, also after the package ``repogen.build`` was imported.

    The import system sets a package as an attribute of its parent. Packages are imported by ``from repogen.build.x
    import y``, which does not read that attribute.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _MODULES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        function: object = getattr(import_module(_MODULES[name]), name)
        setattr(self, name, function)
        return function

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Repogen
