"""``kind: mlflow``: a model that MLflow stores."""
