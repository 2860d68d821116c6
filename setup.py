"""Lists the packages of t2t_ext: the engine (t2t_ext/) and the garden (problems/, hparams/, recipes/, bin/).

The garden's folders are at the top of the repository, where users look for them. They
install as ``t2t_ext.problems``, ``t2t_ext.hparams``, ``t2t_ext.recipes`` and
``t2t_ext.bin``, so that nothing called ``problems`` or ``bin`` ends up in
site-packages. Everything else about the package is in pyproject.toml.
"""

import setuptools

GARDEN = ("problems", "hparams", "recipes", "bin")

# Symbolic links in t2t_ext/ lead editors and type checkers to the garden; setuptools takes the real folders.
engine = setuptools.find_packages(include=["t2t_ext", "t2t_ext.*"])

setuptools.setup(
    packages=sorted({*engine, *(f"t2t_ext.{name}" for name in GARDEN)}),
    package_dir={"t2t_ext": "t2t_ext", **{f"t2t_ext.{name}": name for name in GARDEN}},
)
