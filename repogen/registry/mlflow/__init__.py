"""MLflow itself: runs of a build, registered versions, aliases. Only this package imports mlflow.

A version is registered as pending before it is published, and confirmed afterwards. Runs and registry are joined with
repositories by ``Manifest.content_sha256``; a manifest contains neither a run ID nor a registry number.
"""
