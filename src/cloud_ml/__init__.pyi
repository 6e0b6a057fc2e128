from cloud_ml.aio.client import AsyncCloudMlClient as AsyncCloudMlClient
from cloud_ml.client import CloudMlClient as CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob as TrainJob
from cloud_ml.models.services.model_service import ModelService as ModelService

__version__: str
