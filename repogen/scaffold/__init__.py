"""``repogen init``: a commented, working spec with a tiny model or for a model that is there, and a GitHub workflow."""
