"""Pseudo-reference sidecars that code makes instead of two trained models, for tests of training."""

import hashlib
import random

FAILED = 3  # training pairs without a pseudo reference, for each side


def write_sidecar(data_dir, problem, seed=1):
    """Writes ``problem``'s sidecar of references that go wrong at their end (L2R) or at their beginning (R2L).

    Args:
      data_dir: The directory with the data of the problem, which gets the sidecar.
      problem: A Problem.
      seed: The seed of the random errors.
    """
    import numpy as np

    from t2t_ext.data.datasets.example_store import ExampleStore
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.data.datasets.manifest import manifest_path, shard_name, text_name
    from t2t_ext.data.datasets.pseudo_references import SUFFIX, PseudoManifest, SplitPseudo
    from t2t_ext.data.generation.shards import npz_bytes

    generated = GeneratedData.open(problem, data_dir)
    encoder, name, rng = generated.text_encoders()[1], problem.name + SUFFIX, random.Random(seed)
    splits, written = {}, {}

    def write(file_name, content):
        (data_dir / file_name).write_bytes(content)
        written[file_name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    for split in ("train", "dev"):
        store = ExampleStore.load(generated, split)
        sides = {"l2r": [], "r2l": []}
        for number in range(store.num_examples):
            ids = store.example(number)[1].tolist()[:-1]
            half = len(ids) // 2
            sides["l2r"].append([*ids[:half], *rng.sample(ids[half:], max(1, len(ids) - half - 1)), 1])
            sides["r2l"].append([*rng.choices(ids, k=half + 1), *ids[half:], 1])
        for side, first in (("l2r", 1), ("r2l", 2)) if split == "train" else ():
            for number in range(first, first + FAILED):
                sides[side][number] = []
        sizes = list(_pairs_of_shards(generated, split))
        begin, shards = 0, []
        for index, size in enumerate(sizes):
            arrays = {}
            for side, rows in sides.items():
                part = rows[begin : begin + size]
                arrays[side] = np.concatenate([np.zeros(0, np.uint16), *(np.array(ids, np.uint16) for ids in part)])
                arrays[f"{side}_lengths"] = np.array([len(ids) for ids in part], np.int32)
            shards.append(shard_name(name, split, index, len(sizes)))
            write(shards[-1], npz_bytes(arrays))
            begin += size
        texts = {side: text_name(name, split, side) for side in sides}
        for side, rows in sides.items():
            lines = (encoder.decode(ids) for ids in rows)
            write(texts[side], "".join(line + "\n" for line in lines).encode())
        failures = {side: {"empty": sum(not ids for ids in rows)} for side, rows in sides.items()}
        splits[split] = SplitPseudo(
            pairs=store.num_examples, shards=shards, texts=texts, failures=failures, statistics={"l2r": {}, "r2l": {}}
        )
    manifest = PseudoManifest(
        problem=name,
        data={"digest": generated.digest()},
        models={"l2r": [], "r2l": []},
        settings={"made": "by a test"},
        splits=splits,
        files=written,
        versions={},
    )
    manifest_path(data_dir, name).write_text(manifest.to_json(), encoding="utf-8")


def _pairs_of_shards(generated, split):
    import numpy as np

    for path in generated.shard_paths(split):
        with np.load(path) as shard:
            yield len(shard["inputs_lengths"])
