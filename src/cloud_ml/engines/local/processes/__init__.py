"""Single processes of a job: how one is started with its limits and its user, how it is
watched, how its end is judged, and how its descendants are found and ended.
"""
