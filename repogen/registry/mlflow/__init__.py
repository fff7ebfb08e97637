"""MLflow: runs of a build, registered versions, aliases. Only this package imports mlflow.

A version is registered as pending before it is published, and confirmed afterward. Runs and registered versions are
matched with repositories by ``Manifest.content_sha256``; a manifest contains neither a run ID nor a registry number.

``access`` is the entry. It, ``preflight`` and ``uri`` do not import mlflow, which takes seconds; the other modules
import mlflow's names from ``library``.
"""
