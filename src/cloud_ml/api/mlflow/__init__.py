"""The REST API of MLflow below ``/mlflow``, for its clients as they are."""
