"""The one part of the packaging that pyproject.toml cannot express: configs/ inside the package.

A wheel holds the files of `configs/` as `dml/_configs`; `dml/core/installation.py` finds them.
"""

from setuptools import find_namespace_packages, setup

# Folders of data files count as packages, too.
code = find_namespace_packages(include=["dml*"], exclude=["*__pycache__*"])
groups = [f"dml._configs.{name}" for name in find_namespace_packages("configs")]
setup(
    packages=[*code, "dml._configs", *groups, "hydra_plugins"],
    package_dir={"dml._configs": "configs"},
    package_data={
        "dml": ["py.typed"],
        "dml.models": ["*.safetensors"],
        "dml.results": ["papers/*", "templates/*"],
        "dml.runs": ["templates/*"],
        "dml._configs": ["**/*.yaml"],
    },
)
