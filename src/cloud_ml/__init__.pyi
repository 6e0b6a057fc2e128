from cloud_ml.aio.client import AsyncCloudMlClient as AsyncCloudMlClient
from cloud_ml.client import CloudMlClient as CloudMlClient
from cloud_ml.models.model_service import ModelService as ModelService
from cloud_ml.models.train_job import TrainJob as TrainJob

__version__: str
