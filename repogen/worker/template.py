"""Renders the templates of a spec in a process of its own: a template can take any time and any memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from repogen.errors import ErrorRecord, RepogenError, error_from_record
from repogen.triton_config.render.template import TemplateVariables, template_error
from repogen.worker.supervisor import SupervisedProcess, SupervisionError, Task, TimeLimitError, job_json

if TYPE_CHECKING:
    import threading

CPU_SECONDS = 10
"""Compute time for one template; repogen's own need milliseconds."""
MEMORY_MB = 512
"""Memory for one template, in addition to that of the process before."""
_TOTAL_SECONDS = 300.0  # with the start of the process, on an overloaded machine


@dataclass(frozen=True)
class TemplateJob:
    """One template to render.

    Attributes:
        variables: Its variables.
        overrides: The spec's directory of templates.
        template: Name of the template.
        cpu_seconds: Limit of its compute time.
    """

    variables: TemplateVariables
    overrides: Path
    template: str
    cpu_seconds: int


@dataclass(frozen=True)
class TemplateEvent:
    """The only event of the process.

    Attributes:
        text: The text.
        error: Why there is no text.
    """

    text: str = ""
    error: ErrorRecord | None = None


JOB: TypeAdapter[TemplateJob] = TypeAdapter(TemplateJob)
EVENT: TypeAdapter[TemplateEvent] = TypeAdapter(TemplateEvent)


def render_template(
    work_dir: Path, cancelled: threading.Event, variables: TemplateVariables, overrides: Path | None, template: str
) -> str:
    """Return the text of config.pbtxt, as ``repogen.triton_config.render.template.render`` does.

    Args:
        work_dir: Receives the log of the process; created if it does not exist, as for a model from the cache.
        cancelled: When set, the process is killed.
        variables: The template's variables.
        overrides: The spec's directory of templates.
        template: Name of the template.

    Raises:
        ConfigError: The template cannot be rendered, or takes too long or too much memory.
        KeyboardInterrupt: The build was cancelled.
    """
    overrides = (overrides or Path()).absolute()
    work_dir.mkdir(parents=True, exist_ok=True)
    job = job_json(JOB, TemplateJob(variables, overrides, template, CPU_SECONDS))
    task = Task("repogen.worker.template_child", job, overrides, work_dir / "template.log")
    with SupervisedProcess(task, cancelled) as process:
        process.limit_time(_TOTAL_SECONDS)
        try:
            event = next(process.events(EVENT))
        except SupervisionError as error:
            raise _cut_short(error, process, template) from error
    if event.error is not None:
        raise error_from_record(event.error)
    return event.text


def _cut_short(error: SupervisionError, process: SupervisedProcess, template: str) -> RepogenError:
    log = process.log
    if isinstance(error, TimeLimitError):
        reason = f"it was still running after {_TOTAL_SECONDS:g} s"
    else:
        reason = f"the process that rendered it {error}{log.suffix}"
    failure = template_error(reason, template)
    failure.details = log.text
    return failure
