# /// script
# dependencies = ["accelerate", "transformers"]
# ///
"""Transformers: a callback reports what the Trainer has saved."""

import os

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from cloud_ml import job


class ReportedCheckpoints(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            job.saved(path, state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 15 and os.environ["CLOUDML_ATTEMPT"] == "1":
            os._exit(1)  # a failure


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, values, labels):
        found = self.line(values)
        return {"loss": (found - labels).pow(2).mean(), "logits": found}


start = job.latest()
print("starts at step", start.step if start else 0)
trainer = Trainer(
    model=Line(),
    args=TrainingArguments(
        job.checkpoint_dir(),
        max_steps=30,
        save_steps=10,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=[{"values": torch.ones(1), "labels": torch.full((1,), 2.0)}] * 80,
    callbacks=[ReportedCheckpoints()],
)
trainer.train(resume_from_checkpoint=start.path if start else None)
print("trained")
