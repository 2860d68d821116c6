"""Translates sentences with an exported SavedModel; needs TensorFlow and tensorflow-text, not t2t_ext.

python translate_with_export.py EXPORT_DIR "A sentence." "Another one."
"""

import argparse
import pathlib

import tensorflow as tf
import tensorflow_text  # noqa: F401 -- registers the text operations of the SavedModel


def main() -> None:
    """Loads the newest version in the export directory and prints each sentence with its translation."""
    parser = argparse.ArgumentParser(description="Translates sentences with an exported SavedModel.")
    parser.add_argument("export_dir", type=pathlib.Path, help="The folder that t2t_ext-exporter wrote.")
    parser.add_argument("sentences", nargs="+", metavar="sentence")
    given = parser.parse_args()
    newest = max((path for path in given.export_dir.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    translate = tf.saved_model.load(str(newest)).signatures["serving_default"]
    result = translate(inputs=tf.constant(given.sentences))
    for sentence, output, score in zip(
        given.sentences, result["outputs"].numpy(), result["scores"].numpy(), strict=True
    ):
        print(f"{sentence}\n  -> {output.decode()}   (score {score:.2f})")


if __name__ == "__main__":
    main()
