"""The original wire under ``/cloud_ml/v1``: the room for its quirks.

Bodies are JSON whatever their Content-Type says, unknown fields are let pass and noted on the job,
lists are the newest 1,000 under ``data``, and GETs may start things. Every answer is a JSON object:
an empty one would crash the original client.
"""

from __future__ import annotations

from fastapi import APIRouter

from cloud_ml.api.v1_compat import accounts, hp, model, secret, tensorboard, train

router = APIRouter(prefix="/cloud_ml/v1", include_in_schema=False)
router.include_router(train.router)
router.include_router(hp.router)
router.include_router(model.router)
router.include_router(accounts.router)
router.include_router(secret.router)
router.include_router(tensorboard.router)
