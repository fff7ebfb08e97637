"""``kind: huggingface``: loads a transformers model from a directory or the Hugging Face Hub.

repogen reads the directory itself and passes only a configuration and tensors to transformers. Nothing in the
directory (pickles, adapters, kernels, code) is run unless the spec sets ``trust_remote_code``.
"""
