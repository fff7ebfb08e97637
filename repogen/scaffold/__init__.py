"""``repogen init``: a commented, working spec with a tiny model or for a model that is there, and a GitHub workflow."""

from repogen.scaffold.describe import describe
from repogen.scaffold.files import ACTION, SPEC, WORKFLOW, scaffold, scaffold_from

__all__ = ["ACTION", "SPEC", "WORKFLOW", "describe", "scaffold", "scaffold_from"]
