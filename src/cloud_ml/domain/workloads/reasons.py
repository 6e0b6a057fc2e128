"""Why a job is where it is: the closed list that every terminal state and event draws from."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A stable word for programs; the sentence for people stands beside it."""

    SUBMITTED = "Submitted"
    SAVED = "Saved"
    STARTING = "Starting"
    STARTED = "Started"
    RESTARTING = "Restarting"
    TASK_RESTARTED = "TaskRestarted"
    TASK_FAILED = "TaskFailed"
    RESIZED = "Resized"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    START_REQUESTED = "StartRequested"
    PAUSE_REQUESTED = "PauseRequested"
    RESUME_REQUESTED = "ResumeRequested"
    RESTART_REQUESTED = "RestartRequested"
    CANCEL_REQUESTED = "CancelRequested"
    DELETE_REQUESTED = "DeleteRequested"
    RESTORE_FROM = "RestoreFrom"
    FIELD_IGNORED = "FieldIgnored"
    ENVIRONMENT_NOTICE = "EnvironmentNotice"
    UNKNOWN_BUCKET = "UnknownBucket"
    LOGDIR_SHARED = "LogdirShared"
    VALUE_MASKED = "ValueMasked"
    QUOTA_EXCEEDED = "QuotaExceeded"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    WAITING_FOR_ENGINE = "WaitingForEngine"
    REPLACED_IN_PLACE = "ReplacedInPlace"
    NO_PORT = "NoPort"
    RECONCILE_FAILED = "ReconcileFailed"

    NON_ZERO_EXIT = "NonZeroExit"
    SIGNALED = "Signaled"
    HUNG = "Hung"
    OUT_OF_MEMORY = "OOMKilled"
    TIME_LIMIT = "TimeLimitExceeded"
    DISK_QUOTA = "DiskQuotaExceeded"
    CANCELLED = "Cancelled"
    DELETED = "Deleted"
    NO_PROGRESS = "NoProgress"
    NODE_LOST = "NodeLost"
    SUPERVISOR_LOST = "SupervisorLost"
    PREEMPTED = "Preempted"
    PORT_TAKEN = "PortTaken"
    START_TIMEOUT = "StartTimeout"
    START_FAILED = "StartFailed"
    TRAINER_NOT_FOUND = "TrainerNotFound"
    MODEL_NOT_FOUND = "ModelNotFound"
    MODEL_LOAD_FAILED = "ModelLoadFailed"
    TRAINER_INVALID = "TrainerInvalid"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason
    SECRET_UNREADABLE = "SecretUnreadable"  # noqa: S105
    ENVIRONMENT_FAILED = "EnvironmentFailed"
    NO_DISTRIBUTED_RECIPE = "NoDistributedRecipe"
    PREPARE_FAILED = "PrepareCommandFailed"
    FINISH_FAILED = "FinishCommandFailed"
    OUTPUT_UPLOAD_FAILED = "OutputUploadFailed"

    SAVING_OUTPUTS = "SavingOutputs"
    OUTPUTS_SAVED = "OutputsSaved"
    OUTPUTS_NOT_SAVED = "OutputsNotSaved"
    METRICS_REFUSED = "MetricsRefused"
    METRIC_IS_NAN = "MetricIsNaN"
    METRIC_FILE_UNREADABLE = "MetricFileUnreadable"
    METRICS_EXPIRED = "MetricsExpired"
    PROGRESS = "Progress"
    FILES_NOT_KEPT = "FilesNotKept"
    OUTPUTS_EXPIRED = "OutputsExpired"
    CHECKPOINTS_REMOVED = "CheckpointsRemoved"


WAITS = frozenset({Reason.QUOTA_EXCEEDED, Reason.INSUFFICIENT_CAPACITY})
"""Why a job stays in the queue although it is its turn: its organisation's quota, or the
machine, has no room.
"""

CRASHES = frozenset(
    {
        Reason.NON_ZERO_EXIT,
        Reason.SIGNALED,
        Reason.HUNG,
        Reason.OUT_OF_MEMORY,
        Reason.DISK_QUOTA,
        Reason.START_TIMEOUT,
        Reason.PREPARE_FAILED,
        Reason.SECRET_NOT_FOUND,  # retried all the same: somebody may create it again
    }
)
"""Causes that lie in what is run, and not in the machine that runs it."""

PLACE_LOST = frozenset({Reason.NODE_LOST, Reason.PREEMPTED})
"""Ends of a task that has lost its place: its machine is gone, or the engine gave the place to
others. The task can do nothing for that.
"""

NEVER_RETRIED = frozenset(
    {
        Reason.TRAINER_NOT_FOUND,
        Reason.MODEL_NOT_FOUND,
        Reason.TRAINER_INVALID,
        Reason.ENVIRONMENT_FAILED,
        Reason.NO_DISTRIBUTED_RECIPE,
        Reason.NO_PROGRESS,
        Reason.CANCELLED,
        Reason.DELETED,
    }
)
"""Causes that another attempt would only meet again."""
