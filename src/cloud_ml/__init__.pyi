from cloud_ml.aio.client import AsyncCloudMlClient as AsyncCloudMlClient
from cloud_ml.client import CloudMlClient as CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob as TrainJob
from cloud_ml.models.services.model_service import ModelService as ModelService
from cloud_ml.models.studies.study import NewStudy as NewStudy
from cloud_ml.models.tracking.tensorboard import NewTensorBoard as NewTensorBoard

__version__: str
