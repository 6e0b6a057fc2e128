"""What code in a job may import of Cloud ML where the SDK is not installed: ``cloud_ml.job``."""
