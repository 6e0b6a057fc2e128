"""``python -m cloud_ml.serving``."""

from cloud_ml.serving.main import main

main()
