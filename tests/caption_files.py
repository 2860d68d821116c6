"""Tiny files in the published formats of image captioning, with captions that a model can learn from the features.

An image consists of several regions. Every region shows one colored object. Its features are the sum of a vector for
the color, a vector for the object and a little noise. Five captions name the first two regions in different words.
"""

import base64
import json

import numpy as np

SIZE = 12
COLOURS = ("red", "green", "blue", "black")
OBJECTS = ("dog", "cat", "bus", "tree")
_PATTERNS = (
    "a {0} {1} and a {2} {3}",
    "a {0} {1} next to a {2} {3}",
    "there is a {0} {1} with a {2} {3}",
    "one {0} {1} and one {2} {3}",
    "a {0} {1} beside the {2} {3}",
)


def images(count, seed=0, regions=(3, 6)):
    """Yields (id, features float32 [regions, SIZE], captions) for ``count`` images."""
    rng = np.random.default_rng(seed)
    vectors = np.random.default_rng(99).standard_normal([len(COLOURS) + len(OBJECTS), SIZE])
    for number in range(count):
        shown = rng.integers(0, 4, [rng.integers(*regions), 2])
        features = vectors[shown[:, 0]] + vectors[len(COLOURS) + shown[:, 1]]
        features += 0.05 * rng.standard_normal(features.shape)
        # The order of the regions carries no information, so the features mark the first and the second region.
        features[0, 0] += 6.0
        features[1, 1] += 6.0
        words = [COLOURS[shown[0, 0]], OBJECTS[shown[0, 1]], COLOURS[shown[1, 0]], OBJECTS[shown[1, 1]]]
        order = rng.permutation(len(features))
        yield 1000 + number, features[order].astype(np.float32), [each.format(*words) for each in _PATTERNS]


def karpathy(entries, splits):
    """Returns the contents of ``dataset_coco.json``; ``splits`` names each image's split."""
    return {
        "dataset": "coco",
        "images": [
            {
                "filepath": "val2014",
                "sentids": list(range(len(captions))),
                "filename": f"COCO_val2014_{image:012d}.jpg",
                "imgid": number,
                "split": split,
                "cocoid": image,
                "sentences": [
                    {
                        "tokens": caption.split(),
                        "raw": f"{caption.capitalize()}.",
                        "imgid": number,
                        "sentid": 5 * number + i,
                    }
                    for i, caption in enumerate(captions)
                ],
            }
            for number, ((image, _, captions), split) in enumerate(zip(entries, splits, strict=True))
        ],
    }


def table_line(image, features):
    """Returns one image's line of the table of bottom-up attention features."""
    boxes = base64.b64encode(np.zeros([len(features), 4], np.float32).tobytes()).decode()
    encoded = base64.b64encode(np.asarray(features, np.float32).tobytes()).decode()
    return f"{image}\t640\t480\t{len(features)}\t{boxes}\t{encoded}\n"


def write_coco(directory, train=8, restval=2, dev=3, test=3, table=True, seed=0):
    """Writes the splits and the features (one table, or a folder of .npz files) and returns the entries."""
    directory.mkdir(parents=True, exist_ok=True)
    splits = ["train"] * train + ["restval"] * restval + ["val"] * dev + ["test"] * test
    entries = list(images(len(splits), seed))
    (directory / "dataset_coco.json").write_text(json.dumps(karpathy(entries, splits)))
    if table:
        folder = directory / "trainval_36"
        folder.mkdir(exist_ok=True)
        lines = [table_line(image, features) for image, features, _ in reversed(entries)]
        (folder / "trainval_resnet101_faster_rcnn_genome_36.tsv").write_text("".join(lines))
    else:
        folder = directory / "cocobu_att"
        folder.mkdir(exist_ok=True)
        for image, features, _ in entries:
            np.savez_compressed(folder / f"{image}.npz", feat=features)
    return entries
