"""A target of ``mlflow deployments``: versions of MLflow's model registry on running Triton servers."""
