"""What ``cloud_ml.environments`` needs of this machine: processes that prepare runtimes, a
sandbox for installers and package builds, and a disk that programs can be loaded from.
"""
