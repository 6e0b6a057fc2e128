from setuptools import find_packages, setup

setup(name="hello", version="1.0", packages=find_packages(), install_requires=["tensorflow>=1.0"])
