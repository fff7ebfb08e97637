"""``repogen sync``: a Triton repository that follows a registry's alias."""
