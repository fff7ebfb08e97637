"""``kind: mlflow``: loads a model downloaded from MLflow with the loader of its flavor."""
