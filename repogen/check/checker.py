"""Paths -> findings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.check.config_text import ConfigText, read_config
from repogen.check.files import link_findings, manifest_findings, model_file, named_file_findings, version_file_findings
from repogen.check.layout import CONFIG, is_model, policy_findings, root_findings, served, version_findings, versions_of
from repogen.errors import SpecError
from repogen.onnx_graph.facts import read_graph
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.ensemble_repository import Neighbor, circle_findings, ensemble_findings
from repogen.triton_config.rules.findings import RULES, Finding
from repogen.triton_config.rules.graph import batch_size, graph_findings, target_findings
from repogen.triton_config.rules.identity import is_ensemble, is_onnx
from repogen.triton_config.text.parse import empty_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repogen.check.layout import Version
    from repogen.targets import Target
    from repogen.triton_config.text.parse import ModelConfig


@dataclass(frozen=True)
class Selection:
    """Which findings are wanted.

    Attributes:
        select: Codes, or beginnings of codes; empty for all.
        ignore: The same, left out.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what selects nothing.

        Raises:
            SpecError: A code is none.
        """
        for code in (*self.select, *self.ignore):
            if not code or not any(rule.startswith(code) for rule in RULES):
                raise SpecError(
                    f"{code!r} is no rule's code",
                    "use RG101, or RG1 for a family; `repogen explain` lists all codes",
                    code="check.code",
                )

    def wants(self, finding: Finding) -> bool:
        """Whether a finding is selected, and not ignored."""
        chosen = not self.select or finding.code.startswith(self.select)
        return chosen and not finding.code.startswith(self.ignore or ("-",))


@dataclass(frozen=True)
class _Model:
    """A model's directory, and what its config says."""

    directory: Path
    text: ConfigText | None


@dataclass
class _Repository:
    """A repository of which some models are looked at.

    Attributes:
        root: Its directory.
        wanted: The models asked for; None for all, and the root itself.
    """

    root: Path
    wanted: set[Path] | None = field(default_factory=set)


def check(
    *paths: Path | str,
    release: str = DEFAULT_RELEASE,
    selection: Selection = Selection(),
) -> list[Finding]:
    """Say what a Triton would refuse, die of, or accept to a user's surprise.

    Args:
        paths: Repositories, models' directories, or files in them.
        release: The Triton release that is to serve them.
        selection: Which findings are wanted.

    Returns:
        Findings, in the order of paths and lines.

    Raises:
        SpecError: A path is not there, or the release is unknown.
    """
    target = targets().get(release)
    if target is None:
        raise SpecError(f"release {release!r} is unknown", f"one of {', '.join(targets())}", code="check.release")
    found: list[Finding] = []
    for repository in _repositories(Path(path) for path in paths):
        found += _of_repository(repository, target)
    wanted = dict.fromkeys(finding for finding in found if selection.wants(finding))
    return sorted(wanted, key=lambda finding: (finding.path, finding.line, finding.column, finding.code))


def _repositories(paths: Iterable[Path]) -> list[_Repository]:
    found: dict[Path, _Repository] = {}
    for path in paths:
        if not path.exists():
            raise SpecError(
                f"{path} is not there", "name a repository, a model's directory, or a file", code="check.path"
            )
        model = _model_of(path.absolute())
        root = path if model is None else model.parent
        repository = found.setdefault(root.absolute(), _Repository(root))
        if model is None:
            repository.wanted = None
        elif repository.wanted is not None:
            repository.wanted.add(model)
    return list(found.values())


def _model_of(path: Path) -> Path | None:
    """Return the directory of the model that a path is, or lies in; None for a repository."""
    if path.is_dir():
        # a version of repogen's holds a copy of its config
        inside = (entry for entry in path.iterdir() if entry.is_dir() and not entry.name.isdigit())
        of_models = any((entry / CONFIG).exists() for entry in inside)
        return path if is_model(path) and not of_models else None
    if path.name == CONFIG:
        return path.parent
    return next((parent for parent in path.parents if (parent / CONFIG).exists()), path.parent.parent)


def _of_repository(repository: _Repository, target: Target) -> Iterator[Finding]:
    if repository.wanted is None:
        yield from root_findings(repository.root)
    models = {
        entry.name: _model(entry, target)
        for entry in sorted(repository.root.iterdir())
        if entry.is_dir() and is_model(entry)
    }
    neighbors: dict[str, Neighbor] = {}
    for name, model in models.items():
        config = model.text.config if model.text is not None else None
        now = served(versions_of(model.directory), config)
        complete = config is not None and bool(config.input) and bool(config.output)
        guess = None if complete or (model.text is not None and config is None) else _guessed_batch(now, config)
        neighbors[name] = Neighbor(config, tuple(version.number for version in now), guess)
    wanted = None if repository.wanted is None else {path.name for path in repository.wanted}
    for name, model in models.items():
        if wanted is None or name in wanted:
            for finding in _of_model(model, neighbors, target):
                if model.text is None or not model.text.waves(finding):
                    yield finding


def _guessed_batch(versions: list[Version], config: ModelConfig | None) -> int | None:
    """Return the batch that Triton gives a model whose config leaves tensors out; None where nothing tells."""
    file = model_file(versions[0].path, config) if versions else None
    facts = read_graph(file)[0] if file is not None and file.suffix == ".onnx" and file.is_file() else None
    return None if facts is None else batch_size(config or empty_config(), facts.signature)


def _model(directory: Path, target: Target) -> _Model:
    path = directory / CONFIG
    there = path.exists() or path.is_symlink()
    return _Model(directory, read_config(path, target.release) if there else None)


def _of_model(model: _Model, neighbors: dict[str, Neighbor], target: Target) -> Iterator[Finding]:
    directory, text = model.directory, model.text
    config = text.config if text is not None else None
    ensemble = config is not None and is_ensemble(config)
    yield from version_findings(directory, ensemble=ensemble)
    yield from link_findings(directory, directory.parent)
    if text is None:
        message = f"{directory.name} has no config.pbtxt: Triton guesses, and takes any dynamic first axis for a batch"
        yield Finding("RG402", "warning", message, "write one", path=str(directory))
    else:
        yield from text.findings
        if config is None:
            return
        yield from text.placed(config_findings(config, directory.name))
        yield from text.placed(named_file_findings(directory, config))
        yield from text.placed(policy_findings(versions_of(directory), config))
        if ensemble:
            yield from text.placed(ensemble_findings(config, neighbors))
            yield from text.placed(circle_findings(directory.name, neighbors))
    for version in served(versions_of(directory), config):
        yield from version_file_findings(version, config)
    for version in versions_of(directory):
        yield from manifest_findings(version)
    yield from _of_graphs(model, target)


def _of_graphs(model: _Model, target: Target) -> Iterator[Finding]:
    """Yield what is wrong with each version's graph, also those that are not served now: a policy is soon changed."""
    text = model.text
    config = text.config if text is not None else None
    if config is not None and not is_onnx(config):
        return
    versions = versions_of(model.directory)
    now = served(versions, config)
    for version in versions:
        file = model_file(version.path, config)
        if file is None or file.suffix != ".onnx" or not file.exists():
            continue
        facts, wrong = read_graph(file)
        found = [replace(finding, path=str(file)) for finding in wrong]
        if facts is not None:
            too_new = target_findings(facts.opset, facts.ir_version, target)
            found += (replace(finding, path=str(file)) for finding in too_new)
            if config is not None and text is not None:
                found += text.placed(graph_findings(config, facts.signature, facts.spare))
        for finding in found:
            if version not in now:
                message = f"{finding.message} (version {version.number}, which is not served now)"
                yield replace(finding, severity="warning", message=message)
            else:
                several = f" (version {version.number})" if len(now) > 1 else ""
                yield replace(finding, message=finding.message + several)
