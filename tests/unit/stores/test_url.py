"""URLs of repositories: what is accepted where a directory is, and that no secret of a URL is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import repogen
from repogen.cli.group import main
from repogen.errors import SpecError
from repogen.files.url import RepositoryUrl, location
from repogen.spec.load import load_spec

SPEC = """\
repository: {repository}
models:
  m: {{source: {{kind: onnx, path: m.onnx}}}}
"""


@pytest.mark.parametrize("text", ["s3://bucket/a/b", "s3://bucket/a/b/", Path("s3://bucket/a/b")])
def test_url_is_kept_as_text(text: Path | str) -> None:
    """A URL passes through ``Path``, which removes a slash; the parts below it are URLs as well."""
    place = location(text)
    assert isinstance(place, RepositoryUrl)
    assert (str(place / "m" / "1"), place.bucket, place.key) == ("s3://bucket/a/b/m/1", "bucket", "a/b")
    assert place.resolve() == place.absolute() == place


@pytest.mark.parametrize("text", ["models", "./s3/models", "/s3:/models", "C:/models"])
def test_other_text_is_a_path(text: str) -> None:
    """Only a scheme makes a URL."""
    assert location(text) == Path(text)
    assert not isinstance(location(text), RepositoryUrl)


@pytest.mark.parametrize(
    "text",
    ["s3://", "s3://b//a", "s3://b/../a", "s3://b/a\n", "s3://me:secret@b/a", "s3://b/a?token=secret"],
)
def test_unusable_url_is_rejected(text: str) -> None:
    """The message does not contain what may be a secret."""
    with pytest.raises(SpecError) as caught:
        location(text)
    assert caught.value.code == "store.url"
    assert "secret" not in f"{caught.value.message}{caught.value.hint}"


def test_command_line_does_not_repeat_a_secret() -> None:
    """Click reports the error as a usage error."""
    result = CliRunner().invoke(main, ["versions", "--repository", "s3://me:secret@bucket/models"])
    assert result.exit_code == 2
    assert "contains `@`" in result.output
    assert "secret" not in result.output


def test_scheme_that_is_not_registered() -> None:
    """The error lists the stores."""
    with pytest.raises(SpecError, match="no store is registered for ftp://") as caught:
        repogen.versions(repository="ftp://host/models")
    assert "s3://" in caught.value.hint


def test_repository_of_a_spec_may_be_a_url(tmp_path: Path) -> None:
    """It is not relative to the spec, and a wrong one is reported with its line."""
    (tmp_path / "m.onnx").touch()
    path = tmp_path / "repogen.yaml"
    path.write_text(SPEC.format(repository="s3://bucket/models"), encoding="utf-8")
    assert str(load_spec(path).repository) == "s3://bucket/models"
    path.write_text(SPEC.format(repository="s3://me:secret@bucket/models"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"repogen\.yaml:1") as caught:
        load_spec(path)
    assert "secret" not in str(caught.value)
