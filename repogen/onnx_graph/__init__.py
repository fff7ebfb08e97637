"""ONNX files: reads facts about them, normalizes graphs, and writes them."""
