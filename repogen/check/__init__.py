"""Findings about any model repository on disk; needs no server."""
