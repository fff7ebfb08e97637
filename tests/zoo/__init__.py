"""A zoo of models, each with the verdict that is true of it; `make zoo` asks repogen and a plain script for theirs."""
