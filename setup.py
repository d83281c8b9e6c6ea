"""The one part of the packaging that pyproject.toml cannot express: configs/ inside the package.

A wheel holds the files of `configs/` as `dml/_configs`; `dml/core/installation.py` finds them.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["dml*"]), "dml._configs", "hydra_plugins"],
    package_dir={"dml._configs": "configs"},
    package_data={
        "dml": ["py.typed"],
        "dml.models": ["*.safetensors"],
        "dml.results": ["papers/*", "templates/*"],
        "dml._configs": ["**/*.yaml"],
    },
)
