"""Cloud ML, an all-in-one machine learning platform. The SDK's names are imported when they are
used: ``from cloud_ml import CloudMlClient, TrainJob, ModelService``.
"""

__version__ = "0.1.0"
_SDK = {
    "AsyncCloudMlClient": "cloud_ml.aio.client",
    "CloudMlClient": "cloud_ml.client",
    "ModelService": "cloud_ml.models.services.model_service",
    "NewStudy": "cloud_ml.models.studies.study",
    "NewTensorBoard": "cloud_ml.models.tracking.tensorboard",
    "TrainJob": "cloud_ml.models.jobs.train_job",
}
__all__ = [
    "AsyncCloudMlClient",
    "CloudMlClient",
    "ModelService",
    "NewStudy",
    "NewTensorBoard",
    "TrainJob",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _SDK:
        raise AttributeError(f"module 'cloud_ml' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - few need it

    return getattr(import_module(_SDK[name]), name)
