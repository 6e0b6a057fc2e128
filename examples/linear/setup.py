from setuptools import find_packages, setup

setup(
    name="linear",
    version="1.0",
    description="Linear regression in the style of TensorFlow 1",
    packages=find_packages(),
    install_requires=["tensorflow>=1.0"],
)
