"""The version policy in each spelling of protobuf's text format, read and replaced."""

from __future__ import annotations

import pytest

from repogen.repository.version_policy import served_versions, serving_only
from repogen.triton_config.text.parse import parse


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", {4}),
        ('name: "m"', {4}),
        ("version_policy { latest { num_versions: 2 } }", {3, 4}),
        ("version_policy: <latest: <num_versions: 9>>", {1, 3, 4}),
        ("version_policy { }", {1, 3, 4}),
        ("version_policy { latest { } }", set()),
        ("version_policy { latest { num_versions: 0 } }", set()),
        ("version_policy { specific { } }", set()),
        ("version_policy { specific { versions: [3, 3, 9] } }", {3}),
        ("version_policy { all { } }", {1, 3, 4}),
        ("version_policy { specific { versions: [1, 3] } }", {1, 3}),
        ("version_policy{specific{versions:1 versions:0x2,versions:3}}", {1, 3}),
        ("version_policy { specific { versions: 7 } }", set()),
        ('name: "version_policy { all {} }"', {4}),
        ("# version_policy { all {} }\n", {4}),
        ("parameters { key: 'version_policy' value { string_value: '{ all' } }", {4}),
        ("version_policy { latest { num_versions: 2 } }\ninstance_group { count: 7 }", {3, 4}),
    ],
)
def test_served(config: str, expected: set[int]) -> None:
    """The served versions among 1, 3 and 4, newest first; tests/integration/test_versions.py tests the real server."""
    assert served_versions(parse(config, "m"), [1, 3, 4]) == tuple(sorted(expected, reverse=True))


def test_model_without_config() -> None:
    """Triton serves the newest version."""
    assert served_versions(None, [1, 3, 4]) == (4,)
    assert served_versions(None, []) == ()


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
    """The policy is replaced in its place, or appended; comments and strings that look like one are not changed."""
    policy = "version_policy: { specific: { versions: [ 3 ] } }"
    assert expected.replace("P", policy) == serving_only(config, 3)
    assert serving_only(config, 3) == serving_only(serving_only(config, 4), 3)
    if "x: 1" not in config and "a: 1" not in config and "parameters { version" not in config:  # valid configs
        assert served_versions(parse(serving_only(config, 3), "m"), [1, 3, 4]) == (3,)
