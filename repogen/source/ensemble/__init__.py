"""``kind: ensemble``: other models of the spec, composed."""
