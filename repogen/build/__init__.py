"""Spec -> published versions: which models are up to date, the order of the others, and the steps of each one."""
