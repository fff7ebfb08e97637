"""``kind: onnx``: an ONNX file that already exists."""
