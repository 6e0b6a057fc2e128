"""Reads the files of MNIST from a folder. Nothing is downloaded."""

import gzip
import os
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import tensorflow as tf

SOURCE_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
DEFAULT_SOURCE_URL = SOURCE_URL
_IMAGES, _LABELS = 2051, 2049

Datasets = namedtuple("Datasets", ["train", "validation", "test"])  # noqa: PYI024 -- its name and fields are old


def read_data_sets(
    train_dir,
    fake_data=False,
    one_hot=False,
    dtype=tf.float32,
    reshape=True,
    validation_size=5000,
    seed=None,
    source_url=SOURCE_URL,
):
    """Training, validation and test sets, from the four files in a folder; see ``find_folder``."""
    del source_url
    options = {"dtype": dtype, "reshape": reshape, "seed": seed}
    if fake_data:
        made = [DataSet([], [], fake_data=True, one_hot=one_hot, **options) for _ in range(3)]
        return Datasets(*made)
    folder = find_folder(train_dir)
    images, labels = (_read(folder, name, one_hot) for name in (TRAIN_IMAGES, TRAIN_LABELS))
    test_images, test_labels = (_read(folder, name, one_hot) for name in (TEST_IMAGES, TEST_LABELS))
    if not 0 <= validation_size <= len(images):
        raise ValueError(
            f"Validation size should be between 0 and {len(images)}. Received: {validation_size}."
        )
    return Datasets(
        train=DataSet(images[validation_size:], labels[validation_size:], **options),
        validation=DataSet(images[:validation_size], labels[:validation_size], **options),
        test=DataSet(test_images, test_labels, **options),
    )


def find_folder(train_dir):
    """The folder with the files: ``train_dir``, ``$MNIST_DATA``, or one beside the script.

    Old scripts name a folder that TensorFlow 1 downloaded to, such as ``/tmp/data``. A job has an
    empty ``/tmp``, so the last part of that path counts as well.
    """
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or ".").resolve().parent
    beside = [Path(train_dir).name or "data", "MNIST_data", "data", "mnist", "."]
    given = [train_dir, os.environ.get("MNIST_DATA", "")]
    folders = [Path(name) for name in [*filter(None, given), *beside]] + [
        script / name for name in beside
    ]
    for folder in folders:
        if _find(folder, TRAIN_IMAGES):
            return folder
    looked = train_dir if Path(train_dir).name == "MNIST_data" else f"{train_dir} or MNIST_data"
    raise FileNotFoundError(
        f"{TRAIN_IMAGES} is not in {looked}. Put the four files of {SOURCE_URL} into the folder "
        "MNIST_data beside your script, or into a bucket: --env MNIST_DATA=fds://BUCKET/mnist"
    )


def extract_images(f):
    """Images of an open file in gzip format, as an array of bytes: number, rows, columns, 1."""
    return _images(gzip.GzipFile(fileobj=f).read(), getattr(f, "name", "the file"))


def extract_labels(f, one_hot=False, num_classes=10):
    """Labels of an open file in gzip format."""
    labels = _labels(gzip.GzipFile(fileobj=f).read(), getattr(f, "name", "the file"))
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def dense_to_one_hot(labels_dense, num_classes):
    """A row for each label, with a 1 at its place."""
    return np.eye(num_classes)[np.asarray(labels_dense, dtype=np.int64)]


class DataSet:
    """Images and labels, handed out in batches, shuffled anew in each epoch."""

    def __init__(
        self,
        images,
        labels,
        fake_data=False,
        one_hot=False,
        dtype=tf.float32,
        reshape=True,
        seed=None,
    ):
        self._random = np.random.RandomState(seed)
        self._fake, self._one_hot = fake_data, one_hot
        dtype = tf.as_dtype(dtype).base_dtype
        if dtype not in (tf.uint8, tf.float32):
            raise TypeError(f"Invalid image dtype {dtype!r}, expected uint8 or float32")
        images, labels = np.asarray(images), np.asarray(labels)
        if not fake_data:
            if len(images) != len(labels):
                raise ValueError(f"images.shape: {images.shape} labels.shape: {labels.shape}")
            if reshape:
                images = images.reshape(len(images), int(np.prod(images.shape[1:])))
            if dtype == tf.float32:
                images = images.astype(np.float32) / 255.0
        self._images, self._labels = images, labels
        self._num_examples = 10000 if fake_data else len(images)
        self._epochs_completed = self._index_in_epoch = 0

    images = property(lambda self: self._images)
    labels = property(lambda self: self._labels)
    num_examples = property(lambda self: self._num_examples)
    epochs_completed = property(lambda self: self._epochs_completed)

    def next_batch(self, batch_size, fake_data=False, shuffle=True):
        """The next images and labels; the rest of an epoch is completed from the next one."""
        if fake_data or self._fake:
            label = [1] + [0] * 9 if self._one_hot else 0
            return [[1] * 784] * batch_size, [label] * batch_size
        if self._index_in_epoch == 0 and self._epochs_completed == 0 and shuffle:
            self._shuffle()
        start = self._index_in_epoch
        if start + batch_size <= self._num_examples:
            self._index_in_epoch = start + batch_size
            return self._images[start : start + batch_size], self._labels[
                start : start + batch_size
            ]
        self._epochs_completed += 1
        rest = self._images[start:], self._labels[start:]
        if shuffle:
            self._shuffle()
        self._index_in_epoch = batch_size - len(rest[0])
        new = self._images[: self._index_in_epoch], self._labels[: self._index_in_epoch]
        return tuple(np.concatenate(pair) for pair in zip(rest, new, strict=True))

    def _shuffle(self):
        order = self._random.permutation(self._num_examples)
        self._images, self._labels = self._images[order], self._labels[order]


def _find(folder, name):
    """The file under its usual name, unpacked, or with the dot that some archives have."""
    plain = name[: -len(".gz")]
    dotted = plain.replace("-idx", ".idx")
    return next(
        (folder / one for one in (name, plain, dotted, dotted + ".gz") if (folder / one).is_file()),
        None,
    )


def _read(folder, name, one_hot):
    path = _find(folder, name)
    if path is None:
        raise FileNotFoundError(
            f"{name} is not in {folder}, where other files of MNIST are: {SOURCE_URL}{name}"
        )
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if "images" in name:
        return _images(content, path)
    labels = _labels(content, path)
    return dense_to_one_hot(labels, 10) if one_hot else labels


def _images(content, path):
    magic, count, rows, columns = _numbers(content, 4, path)
    _check(content, 16 + count * rows * columns, magic, _IMAGES, path)
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, rows, columns, 1)


def _labels(content, path):
    magic, count = _numbers(content, 2, path)
    _check(content, 8 + count, magic, _LABELS, path)
    return np.frombuffer(content, np.uint8, offset=8)


def _numbers(content, count, path):
    if len(content) < 4 * count:
        raise ValueError(f"{path} is no file of MNIST: it has {len(content)} bytes")
    return [int(number) for number in np.frombuffer(content, ">u4", count)]


def _check(content, size, magic, expected, path):
    if magic != expected or len(content) != size:
        raise ValueError(
            f"{path} is no file of MNIST: it begins with {magic} and has {len(content)} bytes, "
            f"expected are {expected} and {size}"
        )
