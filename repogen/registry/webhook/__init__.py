"""Receives the webhooks with which MLflow reports that an alias was moved."""
