"""Moves an alias of a registered model: promotion, rollback, and the history of its moves."""
