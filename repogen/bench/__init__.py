"""``repogen bench``: PyTorch, ONNX Runtime and Triton side by side on one machine.

The modules can be used one by one, for example by a search over configs:

* ``repogen.bench.server.serve_model`` serves one published version with any config;
* ``repogen.bench.inputs.golden_inputs`` checks its outputs, and returns the inputs to send;
* ``repogen.bench.load.measure`` runs perf_analyzer on it, as ``load_target`` describes it, and returns a ``Sample``;
* ``repogen.bench.statistics.estimate`` turns the samples of several rounds into medians with confidence intervals.
"""
