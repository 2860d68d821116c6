"""Packaging of t2t_ext: the engine (t2t_ext/) and the garden (problems/, hparams/, bin/).

The garden's folders stand at the top of the repository, where a user looks for
them, and install as ``t2t_ext.problems``, ``t2t_ext.hparams`` and ``t2t_ext.bin``,
so that nothing called ``problems`` or ``bin`` lands in site-packages.
"""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (ROOT / "t2t_ext" / "version.py").read_text()).group(1)

GARDEN = ("problems", "hparams", "recipes", "bin")
COMMANDS = {
    "trainer": "trainer",
    "datagen": "datagen",
    "doctor": "doctor",
    "decoder": "decoder",
    "exporter": "exporter",
    "avg-all": "avg_all",
    "bleu": "bleu",
    "compare": "compare",
    "query-server": "query_server",
    "prepare": "prepare",
    "translate-all": "translate_all",
    "experiment": "experiment",
    "pseudo-references": "pseudo_references",
    "rerank": "rerank",
    "analyze": "analyze",
}

setuptools.setup(
    name="t2t_ext",
    version=VERSION,
    description="A model garden for neural machine translation on TensorFlow and Keras 3",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The t2t_ext authors",
    license="Apache-2.0",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
    python_requires=">=3.11,<3.14",  # TensorFlow 2.21 has no wheels for later ones
    # Links in t2t_ext/ lead to the garden, for editors and type checkers; packages are taken from where they are.
    packages=sorted(
        {*setuptools.find_packages(include=["t2t_ext", "t2t_ext.*"]), *(f"t2t_ext.{name}" for name in GARDEN)}
    ),
    package_dir={"t2t_ext": "t2t_ext", **{f"t2t_ext.{name}": name for name in GARDEN}},
    package_data={"t2t_ext": ["py.typed"], "t2t_ext.recipes": ["*.toml"], "t2t_ext.problems": ["*.toml"]},
    install_requires=[
        "tensorflow>=2.21,<2.22",
        "tensorflow-text>=2.21.1,<2.22",  # 2.21.0 fails on import
        "keras>=3.15,<3.16",
        "tensorboard>=2.20",  # TensorFlow 2.21 no longer installs it
        "tensorflow-serving-api>=2.20,<2.22",
        "numpy>=1.26",
        "sentencepiece>=0.2.1,<0.3",
        "sacrebleu>=2.6,<3",
        "regex",
        "Babel==2.18.0",  # the offline corpus is a function of Babel's CLDR data: pinned exactly
        "sacremoses>=0.2,<0.3",  # tokens of other versions differ, and so would the scores
        "subword-nmt>=0.3.8,<0.4",
        "regex>=2024.5",  # Unicode's scripts; sacremoses needs it too
        "jieba==0.42.1",  # its dictionary decides how Chinese is cut into words
        "defusedxml>=0.7.1",
        "zstandard>=0.22",
        "rich>=13",
        "matplotlib>=3.8",
        "grpcio>=1.60",
        "protobuf",  # TensorFlow says which version
        "absl-py",
    ],
    extras_require={
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.8",
            "ruff>=0.17,<0.18",
            "apache-beam>=2.77,<3",
            "tensorflow-datasets>=4.9.10,<5",
            "importlib_resources>=5",
            "py3langid>=0.4,<0.5",
            "rouge-score>=0.1.2,<0.2",
            "pycocoevalcap>=1.2,<2",
        ],
        # WMT's corpora; tensorflow-datasets needs importlib_resources for data sets put together from subsets, unsaid.
        "wmt": ["tensorflow-datasets>=4.9.10,<5", "importlib_resources>=5"],
        # ROUGE, and cnn_dailymail of tensorflow-datasets.
        "summarization": ["rouge-score>=0.1.2,<0.2", "tensorflow-datasets>=4.9.10,<5"],
        "language": ["py3langid>=0.4,<0.5"],  # --cleaning=language=true
        "captioning": ["pycocoevalcap>=1.2,<2"],  # --scoring=coco
        "beam": ["apache-beam>=2.77,<3"],  # data generation on more than one machine
        "cuda": ["tensorflow[and-cuda]>=2.21,<2.22"],
    },
    entry_points={
        "console_scripts": [f"t2t_ext-{name} = t2t_ext.bin.{module}:main" for name, module in COMMANDS.items()]
    },
)
