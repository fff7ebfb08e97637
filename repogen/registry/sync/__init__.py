"""``repogen sync``: a Triton repository that follows an alias of a registry."""
