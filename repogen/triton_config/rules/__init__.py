"""Rules for config.pbtxt, one module per part of ModelConfig.

Source: each rule was observed on tritonserver 2.51.0, backend rules with NVIDIA's stock onnxruntime backend. An
``error`` is a configuration that the server rejects or crashes on; a ``warning`` is one that it loads with unexpected
behavior.
"""
