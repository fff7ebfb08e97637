"""``repogen.build``: from a spec to published versions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from repogen.api.spec import spec_of
from repogen.artifacts.plan import Shard
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.build import pipeline
from repogen.build.dependencies import step_versions
from repogen.build.plan import BuildOptions
from repogen.build.plan_file import read_plan
from repogen.files.url import RepositoryUrl, location
from repogen.stores.open import open_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.attestation import SigningKey
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.report import BuildReport
    from repogen.artifacts.serving import Credentials
    from repogen.spec.models import Spec


def build(  # noqa: PLR0913 - one parameter per option of `repogen build`
    spec: Spec | Path | str = "repogen.yaml",
    *,
    models: Sequence[str] = (),
    repository: Path | str | None = None,
    target: str | None = None,
    server: str | None = "embedded",
    credentials: Credentials = NO_CREDENTIALS,
    force: bool = False,
    allow_breaking: bool = False,
    adopt: Sequence[str] = (),
    dry_run: bool = False,
    track: bool = True,
    tracking_uri: str | None = None,
    jobs: int | Literal["auto"] | None = None,
    executor: str = "local",
    stage_dir: Path | str | None = None,
    try_all_exporters: bool = False,
    signing_key: SigningKey | None = None,
    report: bool = True,
    shard: Shard | str | None = None,
    plan: Path | str | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Export, verify, smoke-test and publish the models of a spec, as ``repogen build`` does.

    A model that fails does not stop the others: its report has an ``error``, and ``report.exit_code`` is not 0.

    Example::

        report = repogen.build("repogen.yaml", models=["digits"], dry_run=True)
        report.models[0].status  # <Status.VERIFIED: 'verified'>

    Args:
        spec: A spec file, or a spec that ``repogen.load_spec`` returned.
        models: Names of the models to build; all when empty.
        repository: Publish here instead of the spec's ``repository``.
        target: Build for this Triton release, such as ``24.10``; ignored for a loaded spec, which has a release.
        server: Triton server for the smoke test: ``embedded``, ``docker``, ``HOST:PORT`` or a plug-in's; None to skip
            the test.
        credentials: TLS and headers of a server at ``HOST:PORT``.
        force: Build and publish models that are up to date as well.
        allow_breaking: Allow inputs and outputs that differ from those of the published version.
        adopt: Names of models to take over that are in the repository and were not built by repogen. Their versions
            stay, the new version has the next number, and their config is kept as ``config.pbtxt.adopted``.
        dry_run: Do everything except tracking and publishing.
        track: Track in MLflow where the spec or ``tracking_uri`` says so.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.
        jobs: Number of models to build at a time; ``"auto"`` builds one per processor, as far as memory allows: a model
            waits until the memory that its last build needed is free. By default one on this machine, and as many as
            another executor accepts.
        executor: Where models are exported, verified and tested: ``"local"``, ``"ray"``, ``"ray=ADDRESS"`` or a
            plug-in's. They are always published by this process.
        stage_dir: Stage here instead of next to the repository; it must be on the same filesystem.
        try_all_exporters: Try the remaining exporters as well after one has succeeded.
        signing_key: Sign the versions with it.
        report: Write an HTML report and the results of each model to ``build/reports`` next to the spec.
        shard: Build only this part of the models, such as ``"1/4"``. Every model is in exactly one of the four parts,
            and an ensemble is in the same one as its steps.
        plan: A file with the output of ``repogen plan --json``: shards are balanced by its costs. All shards of a
            build need the same file.
        progress: Receives progress events; silent by default.

    Returns:
        The report of each model, in the order of the spec.

    Raises:
        repogen.errors.SpecError: The spec is wrong; ``SpecProblemsError`` has every problem with its line. Or another
            argument is wrong, such as ``server``, or the signing key cannot be read.
        repogen.errors.RepogenError: Nothing could be built: no server, an unwritable repository, MLflow is down.
    """
    loaded_spec = spec_of(spec, target)
    options = BuildOptions(
        models=tuple(models),
        repository=None if repository is None else location(repository),
        server=server,
        credentials=credentials,
        force=force,
        dry_run=dry_run,
        allow_breaking=allow_breaking,
        adopt=tuple(adopt),
        jobs=jobs,
        executor=executor,
        stage_dir=None if stage_dir is None else Path(stage_dir),
        track=track,
        tracking_uri=tracking_uri,
        try_all_exporters=try_all_exporters,
        signing_key=signing_key,
        report=report,
        shard=Shard.parse(shard) if isinstance(shard, str) else shard,
        costs={} if plan is None else read_plan(Path(plan)),
    )
    events = progress or Silent()
    place = loaded_spec.repository if options.repository is None else options.repository
    if not isinstance(place, RepositoryUrl):
        return pipeline.build(loaded_spec, options, events)
    with open_url(place, options.stage_dir, events, older=step_versions(loaded_spec)) as opened:
        local = replace(options, repository=opened.path, stage_dir=None, store=opened)
        result = pipeline.build(loaded_spec, local, events)
        if not dry_run:
            opened.commit()  # versions are published; this removes the marks of those that MLflow has confirmed
        return opened.with_urls(result)
