"""In the place of torchvision: digits that are drawn instead of downloaded, kept where MNIST is kept."""

import os

import torch


class MNIST(torch.utils.data.Dataset):
    def __init__(self, root, train=True, download=False):
        folder = os.path.join(root, "MNIST", "raw")
        if download:
            os.makedirs(folder, exist_ok=True)
            for name, count in (("train", 640), ("t10k", 200)):
                torch.save(_drawn(count), os.path.join(folder, name + ".pt"))
        self.images, self.labels = torch.load(os.path.join(folder, ("train" if train else "t10k") + ".pt"))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


def _drawn(count):
    labels = torch.arange(count) % 10
    images = torch.rand(count, 1, 28, 28) / 4
    for image, label in zip(images, labels):
        image[0, 2 * label : 2 * label + 4] = 1.0
    return images, labels
