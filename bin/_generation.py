"""Calls ``generate`` with the flags of data generation, for the commands that generate data."""

import argparse
from typing import Any

from t2t_ext.bin._flag_groups import generation_settings
from t2t_ext.data.corpora.download import private_folder
from t2t_ext.data.datasets.manifest import Manifest, manifest_path
from t2t_ext.data.datasets.pseudo_references import command
from t2t_ext.data.generation.generate import generate


def generate_from_flags(args: argparse.Namespace, problem: Any) -> Manifest:
    """Generates the data of a problem as the flags say, unless they exist already; returns their manifest."""
    manifest = generate(problem, args.data_dir, args.tmp_dir or private_folder(), **generation_settings(args))
    sidecar = manifest_path(args.data_dir, problem.name)
    if problem.with_pseudo_references and not sidecar.exists():
        print(
            f"These are the data of {problem.data_name}. What {problem.name} has beside them is made by two runs that "
            f"were trained on {problem.data_name}, the second with --hparams=target_direction=r2l: "
            f"{command(problem.data_name, args.data_dir)}",
            flush=True,
        )
    return manifest
