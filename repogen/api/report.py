"""``repogen.report``: a repository as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MAX_CONFIG_BYTES
from repogen.artifacts.page import RenderedReport
from repogen.errors import SpecError
from repogen.files import is_inside, read_bytes, reason
from repogen.files.content import only_files_in
from repogen.files.paths import require_no_foreign_link
from repogen.files.url import location
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.reporting.results import REPORTS, Results, read_results, write_file
from repogen.repository.inventory import directories_of
from repogen.stores.open import run
from repogen.versions.listing import list_versions

if TYPE_CHECKING:
    from repogen.artifacts.inventory import VersionsReport


def report(
    repository: Path | str = "model_repository",
    *,
    output: Path | str | None = None,
    results: Path | str = REPORTS,
) -> RenderedReport:
    """Write a report of a repository as one HTML file, as ``repogen report`` does.

    Reads manifests and config.pbtxt, and loads no model. The file has no scripts and sends no requests.

    Example::

        repogen.report("model_repository", output="report.html").path  # Path('report.html')

    Args:
        repository: Any model repository, or its URL.
        output: The file; without it, a file in ``results`` with the name of the repository.
        results: Directory with the results of ``build``, ``bench`` and ``tune``; it may be missing.

    Raises:
        repogen.errors.SpecError: The repository does not exist; ``results``, or a model, is behind a symlink of another
            user; or the file can't be written, or would be inside the repository.
        repogen.errors.PublishError: A directory can't be read.
    """
    from repogen.reporting.html.page import repository_page  # noqa: PLC0415 - imports what --help does not need

    root, stored = location(repository), Path(results)
    require_no_foreign_link(stored)
    listing, configs = run(root, _contents)
    path = stored / f"{root.resolve().name or 'repository'}.html" if output is None else Path(output)
    if is_inside(path, root):
        raise SpecError(
            f"{path} is in the model repository", "choose another file with --output", code="report.inside-repository"
        )
    with work_limit(str(root), COMMAND_SECONDS):
        by_model = {model.name: read_results(stored, model.name) for model in listing.models}
        text = repository_page(listing, configs, by_model)
    try:
        write_file(text, path, Path())
    except OSError as error:
        hint = "choose another file with --output"
        raise SpecError(f"{path} can't be written: {reason(error)}", hint, code="report.write") from error
    measured = tuple(name for name, each in by_model.items() if each != Results())
    note = f"no results of these models in {stored}"
    return RenderedReport(
        path,
        len(text.encode()),
        root,
        len(listing.models),
        sum(len(model.versions) for model in listing.models),
        measured,
        listing.notes if measured or not by_model else (*listing.notes, note),
    )


def _contents(repository: Path) -> tuple[VersionsReport, dict[str, str]]:
    """Return the versions of a repository, and the text of each model's config.pbtxt.

    Nothing outside of the repository is read: other users may be able to read the report, but not the files.
    """
    with work_limit(str(repository), COMMAND_SECONDS), only_files_in(*directories_of(repository)):
        listing = list_versions(repository, (), lambda: None)
        return listing, {model.name: _config(model.path / CONFIG_FILE) for model in listing.models}


def _config(path: Path) -> str:
    """Return the text of a config.pbtxt; empty if it can't be read."""
    try:
        return read_bytes(path, MAX_CONFIG_BYTES).decode(errors="replace")
    except OSError:
        return ""
