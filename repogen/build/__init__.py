"""Turns a spec into published versions: what must be built, the steps of each model, and what is recorded of them."""
