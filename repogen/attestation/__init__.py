"""Provenance, bill of materials and signature of a version."""
