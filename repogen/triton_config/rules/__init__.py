"""Rules for config.pbtxt, one module per part of ModelConfig.

Source: each rule was observed on tritonserver 2.51.0, backend rules with the stock onnxruntime backend. An ``error`` is
what the server rejects or crashes on, a ``warning`` what it loads with unexpected behavior.
"""
