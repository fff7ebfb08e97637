"""``kind: ensemble``: models of the spec, connected by their tensors."""
