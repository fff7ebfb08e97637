"""``repogen check``."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from repogen.api.check import check_report
from repogen.check.checker import CheckReport, Selection
from repogen.check.fix import FixReport, fixable, write
from repogen.check.fix import fix as fix_paths
from repogen.check.settings import CheckSettings, find_settings
from repogen.cli.completion import releases, rule_codes
from repogen.cli.group import FILE, PATH_OR_URL, debug_option, handle_errors
from repogen.cli.spec_option import DEFAULT_REPOSITORY, repository_argument
from repogen.errors import ExitCode, SpecError
from repogen.files.url import RepositoryUrl
from repogen.reporting.annotations import finding_annotations
from repogen.reporting.github import workspace, write_check
from repogen.reporting.json import findings_document
from repogen.reporting.output import write_commands, write_json, write_text
from repogen.reporting.sarif import sarif_document
from repogen.reporting.text import findings_text, fixes_text, statistics_text, text_diff
from repogen.targets import DEFAULT_RELEASE

_FORMATS = ("text", "json", "github", "sarif")


@click.command()
@click.argument("paths", type=PATH_OR_URL, nargs=-1, metavar="[DIR|FILE|URL]...")
@click.option(
    "--target", metavar="RELEASE", shell_complete=releases,
    help=f"Triton release to check for (default: the one in repogen.yaml or pyproject.toml, or {DEFAULT_RELEASE}).",
)  # fmt: skip
@click.option(
    "output_format", "--format", type=click.Choice(list(_FORMATS)), default="text", show_default=True,
    help="Text, one JSON document, GitHub Actions annotations, or SARIF for code scanning.",
)  # fmt: skip
@click.option(
    "--json", is_flag=True, hidden=True, expose_value=False,
    callback=lambda context, _option, value: _reject_json(context, is_set=value),
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit 1 on warnings as well.")
@click.option(
    "--select",
    multiple=True,
    metavar="CODE",
    shell_complete=rule_codes,
    help="Report only these codes (RG101) or families (RG1), separated by commas; repeatable.",
)
@click.option(
    "--ignore", multiple=True, metavar="CODE", shell_complete=rule_codes,
    help="Do not report these codes or families; repeatable.",
)  # fmt: skip
@click.option("--fix", is_flag=True, help="Correct config.pbtxt where there is exactly one correction.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: also apply corrections that are guesses.")
@click.option("--diff", is_flag=True, help="Print what --fix would change; exit 1 if there are changes.")
@click.option("--statistics", is_flag=True, help="Print the number of findings per code instead of each finding.")
@click.option(
    "--spec",
    type=FILE,
    metavar="FILE",
    help="Spec with the settings and the release; default: the closest repogen.yaml or pyproject.toml with settings.",
)
@click.option("--isolated", is_flag=True, help="Ignore the settings in repogen.yaml and pyproject.toml.")
@debug_option
def check(  # noqa: PLR0913 - one parameter per option
    *,
    paths: tuple[Path, ...],
    target: str | None,
    output_format: str,
    strict: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    statistics: bool,
    spec: Path | None,
    isolated: bool,
    debug: bool,
) -> None:
    """Find problems in a model repository, without a server.

    Reports what Triton rejects, crashes on, or loads with unexpected behavior. Works on any repository, not only on
    those that repogen built. Accepts repositories, model directories and files in them; the default is
    model_repository. Exits with code 1 if there are errors.
    """
    if unsafe_fixes and not (fix or diff):
        raise click.UsageError("--unsafe-fixes requires --fix or --diff")
    with handle_errors(debug=debug, as_json=output_format == "json"):
        settings = None if isolated else find_settings(Path(), spec)
        request = _request(paths, target, _codes(select), _codes(ignore), settings)
        if diff:
            sys.exit(int(_print_diff(request.fix(unsafe=unsafe_fixes))))
        fixed = request.fix(unsafe=unsafe_fixes) if fix else None
        if fixed is not None:
            write(fixed.files)
        report = request.check() if fixed is None else fixed.remaining
        _WRITERS[output_format](report, fixed, statistics=statistics)
        strict = strict or (settings is not None and settings.spec.strict)
        has_failures = any(strict or finding.severity == "error" for finding in report.findings)
        if output_format != "github":
            write_check(report, failed=has_failures, err=output_format != "text")
        sys.exit(int(ExitCode.GATE if has_failures else ExitCode.OK))


@dataclass(frozen=True)
class _Request:
    """What to check, from options and settings."""

    paths: tuple[Path, ...]
    release: str
    selection: Selection

    def check(self) -> CheckReport:
        return check_report(self.paths, self.release, self.selection)

    def fix(self, *, unsafe: bool) -> FixReport:
        if urls := [path for path in self.paths if isinstance(path, RepositoryUrl)]:
            raise SpecError(
                f"{urls[0]} is in a store, and --fix and --diff work with local files only",
                "copy the model with the tools of the store, or correct the spec and build again",
                code="check.url",
            )
        return fix_paths(self.paths, self.release, self.selection, unsafe=unsafe)


def _request(
    paths: tuple[Path, ...],
    target: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    settings: CheckSettings | None,
) -> _Request:
    """Return what to check; an option replaces the setting."""
    paths = tuple(repository_argument(path, str(DEFAULT_REPOSITORY / path)) for path in paths) or (DEFAULT_REPOSITORY,)
    if settings is None:
        return _Request(paths, target or DEFAULT_RELEASE, Selection(select, ignore))
    spec = settings.spec
    selection = Selection(select or spec.select, ignore or spec.ignore, spec.per_path_ignores, settings.file.parent)
    return _Request(paths, target or spec.target or DEFAULT_RELEASE, selection)


def _print_diff(fixed: FixReport) -> ExitCode:
    for file in fixed.files:
        write_text(text_diff(file).removesuffix("\n"))
    write_text(fixes_text(fixed, verb="would fix"), err=True)
    return ExitCode.GATE if fixed.files else ExitCode.OK


def _text(report: CheckReport, fixed: FixReport | None, *, statistics: bool) -> None:
    text = (
        statistics_text(report.findings)
        if statistics
        else findings_text(report.findings, report.models, fixable(report.findings), report.unexamined)
    )
    write_text(text if fixed is None else f"{text}\n{fixes_text(fixed)}", wrap=True)


def _json(report: CheckReport, fixed: FixReport | None, *, statistics: bool) -> None:  # noqa: ARG001 - always included
    files = [] if fixed is None else [{"path": str(file.path), "fixes": file.fixes} for file in fixed.files]
    write_json(findings_document(report.findings, report.models, files, report.unexamined))


def _github(report: CheckReport, fixed: FixReport | None, *, statistics: bool) -> None:  # noqa: ARG001 - annotations only
    write_commands([annotation.command(workspace()) for annotation in finding_annotations(report.findings)], err=False)


def _sarif(report: CheckReport, fixed: FixReport | None, *, statistics: bool) -> None:  # noqa: ARG001 - findings only
    write_json(sarif_document(report.findings, workspace()))


_WRITERS = dict(zip(_FORMATS, (_text, _json, _github, _sarif), strict=True))


def _reject_json(context: click.Context, *, is_set: bool) -> None:
    """Reject the option that other commands have; the error says how to write it."""
    if is_set:
        context.fail("No such option '--json'; use --format json")


def _codes(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code for value in values for code in re.split(r"[,\s]+", value) if code)
