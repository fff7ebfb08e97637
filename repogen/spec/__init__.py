"""YAML -> Spec: every problem at once, each with its place; and the spec's JSON Schema.

Names are imported on first use: who needs only the models does not pay for the YAML reader.
"""
