"""Loads the model of a spec entry: its signature, example inputs and reference. Runs in the worker process."""
