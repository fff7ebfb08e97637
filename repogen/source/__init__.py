"""Spec entry -> SourceModel: the user's module, its signature and seeded example inputs. Runs in the worker."""
