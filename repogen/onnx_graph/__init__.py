"""ONNX files: what they contain, how they are normalized, and how they are written."""
