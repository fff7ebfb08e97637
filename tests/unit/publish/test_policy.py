"""The version policy as Triton's text format may spell it."""

from __future__ import annotations

import pytest

from repogen.errors import PublishError
from repogen.publish.policy import version_policy


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
