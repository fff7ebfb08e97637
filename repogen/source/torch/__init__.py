"""``kind: torch``, ``torch_export`` and ``torchscript``: modules, exported programs and TorchScript archives."""
