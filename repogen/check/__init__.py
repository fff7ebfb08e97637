"""Findings about any model repository on disk, without a server."""
