"""Which distribution brings a module that is missing, and what else a missing module may mean.

Only well-known names are in the table: for any other, the distribution of the same name may be a
stranger's.
"""

from __future__ import annotations

import re
import shlex
import sys

from cloud_ml.environments.trainers import python2

DISTRIBUTIONS = {
    "absl": "absl-py",
    "accelerate": "accelerate",
    "albumentations": "albumentations",
    "altair": "altair",
    "bitsandbytes": "bitsandbytes",
    "boto3": "boto3",
    "botocore": "botocore",
    "bs4": "beautifulsoup4",
    "cairosvg": "CairoSVG",
    "catboost": "catboost",
    "click": "click",
    "cpuinfo": "py-cpuinfo",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "datasets": "datasets",
    "dateutil": "python-dateutil",
    "diffusers": "diffusers",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "einops": "einops",
    "evaluate": "evaluate",
    "faiss": "faiss-cpu",
    "fire": "fire",
    "flax": "flax",
    "gensim": "gensim",
    "git": "GitPython",
    "google.cloud.storage": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "gym": "gym",
    "gymnasium": "gymnasium",
    "h5py": "h5py",
    "huggingface_hub": "huggingface_hub",
    "hydra": "hydra-core",
    "imageio": "imageio",
    "imblearn": "imbalanced-learn",
    "IPython": "ipython",
    "jax": "jax",
    "jieba": "jieba",
    "joblib": "joblib",
    "keras": "keras",
    "keras_tuner": "keras-tuner",
    "kornia": "kornia",
    "Levenshtein": "Levenshtein",
    "librosa": "librosa",
    "lightgbm": "lightgbm",
    "lightning": "lightning",
    "lxml": "lxml",
    "magic": "python-magic",
    "matplotlib": "matplotlib",
    "mlflow": "mlflow",
    "MySQLdb": "mysqlclient",
    "networkx": "networkx",
    "nltk": "nltk",
    "numba": "numba",
    "numpy": "numpy",
    "omegaconf": "omegaconf",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "openpyxl": "openpyxl",
    "optax": "optax",
    "optuna": "optuna",
    "orbax": "orbax-checkpoint",
    "pandas": "pandas",
    "peft": "peft",
    "PIL": "pillow",
    "pkg_resources": "setuptools<81",
    "plotly": "plotly",
    "polars": "polars",
    "psutil": "psutil",
    "psycopg2": "psycopg2-binary",
    "pyarrow": "pyarrow",
    "pycocotools": "pycocotools",
    "pydantic": "pydantic",
    "pymysql": "PyMySQL",
    "pytorch_lightning": "pytorch-lightning",
    "ray": "ray",
    "regex": "regex",
    "requests": "requests",
    "rich": "rich",
    "sacrebleu": "sacrebleu",
    "safetensors": "safetensors",
    "scipy": "scipy",
    "seaborn": "seaborn",
    "sentence_transformers": "sentence-transformers",
    "sentencepiece": "sentencepiece",
    "setuptools": "setuptools",
    "shap": "shap",
    "simplejson": "simplejson",
    "six": "six",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "soundfile": "soundfile",
    "spacy": "spacy",
    "sqlalchemy": "SQLAlchemy",
    "statsmodels": "statsmodels",
    "tabulate": "tabulate",
    "tensorboard": "tensorboard",
    "tensorboardX": "tensorboardX",
    "tensorflow": "tensorflow",
    "tensorflow_addons": "tensorflow-addons",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "tf_keras": "tf-keras",
    "tf_slim": "tf-slim",
    "tiktoken": "tiktoken",
    "timm": "timm",
    "tokenizers": "tokenizers",
    "toml": "toml",
    "torch": "torch",
    "torch_geometric": "torch-geometric",
    "torchaudio": "torchaudio",
    "torchmetrics": "torchmetrics",
    "torchtext": "torchtext",
    "torchvision": "torchvision",
    "tqdm": "tqdm",
    "transformers": "transformers",
    "typer": "typer",
    "umap": "umap-learn",
    "wandb": "wandb",
    "xgboost": "xgboost",
    "xlrd": "xlrd",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
    "zstandard": "zstandard",
}
"""The distribution that brings a module, as its line in ``requirements.txt``."""

_REMOVED = {
    "asynchat": "asyncio", "asyncore": "asyncio", "cgi": "urllib.parse", "distutils": "setuptools",
    "imp": "importlib", "pipes": "shlex",
}  # fmt: skip
_CLUSTER = "submit it with --recipe dask -w N, which installs it, or with --install distributed"
_OF_RECIPES = {
    "mpi4py": "submit it with --recipe mpi -w N, which installs it",
    "dask": _CLUSTER,
    "distributed": _CLUSTER,
}
_MISSING = re.compile(r"No module named '([^']{1,200})'(; '[^']{1,200}' is not a package)?")


def advice(detail: str) -> str:
    """What helps against a ``ModuleNotFoundError`` with the message ``detail``."""
    match = _MISSING.match(detail)
    if match is None:
        return ""
    module, top = match[1], match[1].partition(".")[0]
    if match[2]:
        return f"a file or folder of yours named {top} hides the package: rename it"
    if module == top and (recipe := _OF_RECIPES.get(top)):
        return recipe
    if module.startswith(("tensorflow.contrib", "tensorflow.examples")):
        return (
            "this is TensorFlow 1 code: submit it with --framework tensorflow --framework_version 1"
        )
    if distribution := DISTRIBUTIONS.get(module) or (
        "" if module != top else DISTRIBUTIONS.get(top, "")
    ):
        # Quote it: "setuptools<81" has a "<", which is a redirection in a shell.
        package = shlex.quote(distribution)
        return (
            f'add the line "{distribution}" to requirements.txt, or submit with --install {package}'
        )
    if module != top:
        return f"the installed {top} does not have it: require a version of it that does"
    return _of_python(module) or (
        "if it is a package, add its line to requirements.txt; if it is your own file, submit "
        "the folder that holds it"
    )


def _of_python(module: str) -> str:
    if replacement := python2.MODULES.get(module):
        return f"this is a module of Python 2: import {replacement} instead"
    if replacement := _REMOVED.get(module):
        return f"Python {sys.version_info.major} has it no longer: use {replacement} instead"
    return ""
