"""Loads a YAML spec, reports all its problems with line and column, and generates the spec's JSON Schema."""
