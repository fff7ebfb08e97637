"""Completions for the shell: names of models, Triton releases, servers and codes; nothing is run or requested."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import RepogenError
from repogen.explain import codes
from repogen.files import read_text
from repogen.plugins import plugins
from repogen.repository.layout import models_of
from repogen.spec.document import compose, data
from repogen.spec.load import MAX_BYTES
from repogen.targets import targets

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

# Bash inserts a completion as it is: `$(…)` in the name of a directory would run when the line is entered, and a name
# that begins with a dash would be an option.
_WORD = re.compile(r"(?!-)[\w.@%+=:,/-]+")
_SPEC = Path("repogen.yaml")
_REPOSITORY = Path("model_repository")


def spec_models(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the models of the spec that the command line names, or of repogen.yaml; it may have problems."""
    path = Path(_argument(context, "spec") or _SPEC)
    with suppress(OSError, UnicodeDecodeError):
        root, _ = compose(read_text(path, MAX_BYTES), str(path))
        document = None if root is None else data(root)
        models = document.get("models") if isinstance(document, dict) else None
        return _starting(incomplete, models if isinstance(models, dict) else ())
    return []


def repository_models(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the models of the repository that the command line names, or of model_repository."""
    path = _argument(context, "directory", "repository", "source") or _REPOSITORY
    with suppress(RepogenError):
        return _starting(incomplete, models_of(Path(path)))
    return []


def measured_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the models of the repository if the command line names one, otherwise those of the spec."""
    names = spec_models if context.params.get("repository") is None else repository_models
    return names(context, parameter, incomplete)


def releases(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the Triton releases that repogen knows, newest first."""
    return _starting(incomplete, sorted(targets(), reverse=True))


def server_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the registered servers."""
    return _starting(incomplete, sorted(plugins("repogen.servers")))


def code_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the codes that have a page."""
    return _starting(incomplete, codes())


def rule_codes(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the codes of rules."""
    return _starting(incomplete, (code for code in codes() if code.startswith("RG")))


def _argument(context: click.Context, *names: str) -> str | Path | None:
    """Return the first argument, which click has not parsed if an option without its value follows; or a parameter."""
    values = [*context.args[:1], *(context.params.get(name) for name in names)]
    return next((value for value in values if value is not None), None)


def _starting(incomplete: str, choices: Iterable[object]) -> list[str]:
    """Return the choices that start with a text; not those that a shell would interpret."""
    texts = map(str, choices)
    return [text for text in texts if text.startswith(incomplete) and _WORD.fullmatch(text)]
