# /// script
# dependencies = ["lightning"]
# ///
"""Lightning: a CheckpointIO reports what it has saved. In a job of several tasks, rank 0 saves."""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch.utils.data import DataLoader, TensorDataset

from cloud_ml import job


class ReportedCheckpoints(TorchCheckpointIO):
    def save_checkpoint(self, checkpoint, path, storage_options=None):
        super().save_checkpoint(checkpoint, path, storage_options)
        job.saved(path, checkpoint["global_step"])


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        if self.global_step == 15 and os.environ["CLOUDML_ATTEMPT"] == "1":
            os._exit(1)  # a failure
        (values,) = batch
        return (self.line(values) - 2 * values).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


start = job.latest()
print("starts at step", start.step if start else 0)
trainer = lightning.Trainer(
    max_steps=30,
    logger=False,
    enable_progress_bar=False,
    plugins=[ReportedCheckpoints()],
    callbacks=[
        ModelCheckpoint(
            job.checkpoint_dir(), filename="{step}", every_n_train_steps=10, save_top_k=-1
        )
    ],
)
batches = DataLoader(TensorDataset(torch.ones(80, 1)), batch_size=8)
trainer.fit(Line(), batches, ckpt_path=start.path if start else None)
print("trained")
