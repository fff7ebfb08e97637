"""stage: a private one-version repository beside the real one, with a manifest of every file."""

from repogen.stage.members import stage_members
from repogen.stage.root import preflight, prepare_stage_root, private_repository
from repogen.stage.version import stage_version

__all__ = ["preflight", "prepare_stage_root", "private_repository", "stage_members", "stage_version"]
