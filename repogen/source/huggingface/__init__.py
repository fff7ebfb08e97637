"""``kind: huggingface``: a directory of transformers, or a name on the hub -> SourceModel, with no further spec.

The directory is read by repogen itself; transformers is given a configuration and tensors, never the directory, so
that nothing in it (pickles, adapters, kernels, code) is run unless the spec trusts its code.
"""
