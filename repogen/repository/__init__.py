"""A model repository on disk: layout, versions, manifests, ownership, staging, publishing and recovery."""
