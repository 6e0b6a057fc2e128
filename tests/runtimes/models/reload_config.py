"""Asks a model server by the stubs of ``tensorflow-serving-api``, as they are: predict, and
change what is served.
"""

import json
import sys

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

channel = grpc.insecure_channel(sys.argv[1])
models = model_service_pb2_grpc.ModelServiceStub(channel)
predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)


def predict(name):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array([1.0, 2.0], np.float32)))
    return tf.make_ndarray(predictions.Predict(request, timeout=30).outputs["y"]).tolist()


def status(name):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    found = models.GetModelStatus(request, timeout=30).model_version_status
    return [
        [one.version, get_model_status_pb2.ModelVersionStatus.State.Name(one.state)]
        for one in found
    ]


def reload(given):
    request = model_management_pb2.ReloadConfigRequest()
    for name, base in given:
        request.config.model_config_list.config.add(
            name=name, base_path=base, model_platform="tensorflow"
        )
    answer = models.HandleReloadConfigRequest(request, timeout=30)
    return [answer.status.error_code, answer.status.error_message]


asks = {"predict": predict, "status": status, "reload": reload}
for line in sys.stdin:
    what, given = json.loads(line)
    try:
        answer = asks[what](given)
    except grpc.RpcError as error:
        answer = {"code": error.code().name, "details": error.details()}
    print(json.dumps(answer), flush=True)
