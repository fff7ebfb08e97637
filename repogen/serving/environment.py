"""The environment of processes that run code which is not repogen's own: workers, servers and their models, pip."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from repogen.files.paths import is_own_place
from repogen.serving.control import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRETS = frozenset({
    VARIABLE, "REPOGEN_SERVER_HEADER", "REPOGEN_SIGNING_PASSWORD", "REPOGEN_WEBHOOK_SECRET",
    "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
    # with these, a process signs as the CI job; source: the package `id`, which sigstore uses
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "SIGSTORE_ID_TOKEN",
})  # fmt: skip
_COMPILE_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Without these variables, ``torch.compile`` has its caches in the directory of temporary files."""
_URIS = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")


def without_secrets(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment without the secrets that only repogen itself uses.

    These are headers for servers, the password of a signing key, the secret of webhooks, the identity of a CI job, and
    the credentials for MLflow, also those in the user part of a URI. Credentials for Hugging Face, clouds and package
    indexes are kept, because the code of a model may need them.

    >>> without_secrets({"MLFLOW_TRACKING_URI": "https://me:pw@host/x", "MLFLOW_TRACKING_TOKEN": "t", "HF_TOKEN": "h"})
    {'MLFLOW_TRACKING_URI': 'https://host/x', 'HF_TOKEN': 'h'}
    """
    public_variables = {name: value for name, value in environment.items() if name not in _SECRETS}
    return public_variables | {
        name: _without_user(public_variables[name]) for name in _URIS if name in public_variables
    }


def private_places(directory: Path) -> dict[str, str]:
    """Return the variables that give a process a private directory of temporary files, and private caches of code.

    A cache of ``torch.compile`` that the user names by an absolute path is kept unless other users can create files in
    it: PyTorch unpickles its entries, and loads libraries from it. The process may have another working directory.

    Args:
        directory: A private directory, which is removed with the process.
    """
    caches = {name: os.environ[name] for name in _COMPILE_CACHES if os.environ.get(name)}
    replaced = [name for name, path in caches.items() if not _is_own_cache(Path(path))]
    return {"TMPDIR": str(directory), **{name: str(directory / name.lower()) for name in replaced}}


def _is_own_cache(path: Path) -> bool:
    return path.is_absolute() and is_own_place(path / "entry")


def _without_user(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else uri
    except ValueError:  # it is not a URI: MLflow reports it
        return ""
