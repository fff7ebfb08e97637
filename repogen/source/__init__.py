"""Spec entry -> SourceModel: the user's module, its signature and seeded example inputs. Runs in the worker."""

from repogen.source.load import load_source

__all__ = ["load_source"]
