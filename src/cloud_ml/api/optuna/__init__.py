"""Messages and methods of the storage service of Optuna's client, ``optuna.StorageService``."""
