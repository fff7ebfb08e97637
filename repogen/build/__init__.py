"""Spec -> published versions: which models are up to date, the order of the others, and each one from worker to publish."""
