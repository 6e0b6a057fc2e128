from setuptools import find_packages, setup

setup(name="plain", version="1.0", packages=find_packages())
