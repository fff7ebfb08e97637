"""What a Triton that ended while it started is said to have died of."""

from __future__ import annotations

from repogen.serving.process import start_failure

# As tritonserver 2.51.0 logs it, shortened.
LOG = """\
I1121 15:18:42.551720 32170 server.cc:674]
+-------+---------+------------------------------------------------------------------------------+
| Model | Version | Status                                                                       |
+-------+---------+------------------------------------------------------------------------------+
| fine  | 2       | READY                                                                        |
| tiny  | 1       | UNAVAILABLE: Invalid argument: instance group tiny_0 of model tiny has kind {} |
+-------+---------+------------------------------------------------------------------------------+
error: creating server: Internal - failed to load all models
"""


def test_models_that_were_refused_are_named_with_the_reason() -> None:
    """One line for each; the log is left to --debug."""
    log = LOG.format("KIND_MODEL")
    error = start_failure(1, log)
    assert error.message == (
        "Triton does not load all of the repository:\n"
        "  tiny version 1: Invalid argument: instance group tiny_0 of model tiny has kind KIND_MODEL"
    )
    assert (error.code, error.details) == ("server.start", log)


def test_a_gpu_model_without_a_gpu_has_ways_out() -> None:
    """Another machine, another kind, and what still works here."""
    hint = start_failure(1, LOG.format("KIND_GPU but no GPUs are available")).hint
    assert all(way in hint for way in ("--server docker", "KIND_CPU", "repogen smoke"))


def test_without_a_refused_model_the_log_is_shown() -> None:
    """It is all there is to go by."""
    assert start_failure(127, "libpython is missing").message == (
        "Triton ended while it started (exit code 127):\nlibpython is missing"
    )
