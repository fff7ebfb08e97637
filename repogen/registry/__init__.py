"""MLflow: runs, registered versions, promotion and its gates, alias history, and repositories that follow an alias."""
