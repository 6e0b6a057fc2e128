"""The files of a job: its working directory, what each task has for itself, what the server
reads of it as outputs, the links in it, and files that the job wrote elsewhere.
"""
