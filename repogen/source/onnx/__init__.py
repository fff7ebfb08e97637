"""``kind: onnx``: validates an ONNX file and derives its signature."""
