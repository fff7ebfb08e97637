"""The version policy as Triton's text format may spell it, read and replaced."""

from __future__ import annotations

import pytest

from repogen.errors import PublishError
from repogen.repository.version_policy import serving_only, version_policy


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", {4}),
        ('name: "m"', {4}),
        ("version_policy { latest { num_versions: 2 } }", {3, 4}),
        ("version_policy: <latest: <num_versions: 9>>", {1, 3, 4}),
        ("version_policy { latest { } }", {4}),
        ("version_policy { all { } }", {1, 3, 4}),
        ("version_policy { specific { versions: [1, 3] } }", {1, 3}),
        ("version_policy{specific{versions:1 versions:0x2,versions:3}}", {1, 3}),
        ("version_policy { specific { versions: 7 } }", set()),
        ('name: "version_policy { all {} }"', {4}),
        ("# version_policy { all {} }\n", {4}),
        ("parameters { key: 'version_policy' value { string_value: '{ all' } }", {4}),
        ("parameters { version_policy { all {} } }\nversion_policy { latest { num_versions: 2 } }", {3, 4}),
        ("version_policy { latest { num_versions: 2 } }\ninstance_group { count: 7 }", {3, 4}),
    ],
)
def test_served(config: str, expected: set[int]) -> None:
    """The versions served of 1, 3 and 4."""
    assert expected == version_policy(config).served([1, 3, 4])


def test_no_number() -> None:
    """What is no number is an error, not a version."""
    with pytest.raises(PublishError, match="version_policy holds"):
        version_policy("version_policy { specific { versions: 1x } }")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('name: "m"\n', 'name: "m"\n\nP\n'),
        ('name: "m"\n\n\n', 'name: "m"\n\nP\n'),
        ("version_policy { all { } }\nx: 1\n", "P\nx: 1\n"),
        ("a: 1, version_policy: <latest: <num_versions: 9>>, b: 2", "a: 1, P, b: 2"),
        ("version_policy: # why { not }\n{\n  specific { versions: 7 }\n}\n\nx: 1\n", "P\n\nx: 1\n"),
        ('name: "version_policy { all {} }"', 'name: "version_policy { all {} }"\n\nP\n'),
        ("# version_policy { all {} }\n", "# version_policy { all {} }\n\nP\n"),
        (
            "parameters { version_policy { all {} } }\nversion_policy { }\n",
            "parameters { version_policy { all {} } }\nP\n",
        ),
    ],
)
def test_serving_only(config: str, expected: str) -> None:
    """The policy is replaced where it stands, or put last, and comments and strings that look like one are not it."""
    policy = "version_policy: { specific: { versions: [ 3 ] } }"
    assert expected.replace("P", policy) == serving_only(config, 3)
    assert serving_only(config, 3) == serving_only(serving_only(config, 4), 3)
    assert version_policy(serving_only(config, 3)).served([1, 3, 4]) == {3}
