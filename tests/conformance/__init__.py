"""Conformance suite: models with known verdicts; `make conformance` compares repogen and a plain export script."""
