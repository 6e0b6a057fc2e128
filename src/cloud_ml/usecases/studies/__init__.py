"""Studies: what a caller may ask of them, and what their trials have found.

``studies`` is the description of the kind. What a request may say is checked a subject a file:
``spaces``, ``objectives``, ``algorithms``, ``populations``, ``checkpoints``, ``warm_starts``, and
``changes`` of a study that there is. ``ask_tell`` gives trials to loops of users. Values come from
``reported_values``, and are shown by ``trial_curves``, ``readouts`` and ``outputs``. Clients of
others have rooms of their own: Optuna's (``optuna_studies``, ``optuna_storage``) and the original
one's (``original_tunings``, ``hp_views``). What follows for a study is decided in
``domain/studies``.
"""
