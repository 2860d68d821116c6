"""Small KerasHub presets for tests, saved by KerasHub: a tokenizer and a backbone with random weights."""

import io

WORDS = "the red green old small new cat lamp door street city flower sees finds paints loves today often here there"


def write_preset(folder, kind="bert", **sizes):
    """Writes a preset into a folder and returns the folder's path as a string."""
    import keras_hub

    default = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24, "max_sequence_length": 48}
    sizes = default | sizes
    models = keras_hub.models
    if kind in ("bert", "distil_bert"):
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        characters = [sign + letter for letter in "abcdefghijklmnopqrstuvwxyz" for sign in ("", "##")]
        name = {"bert": "Bert", "distil_bert": "DistilBert"}[kind]
        tokenizer = getattr(models, f"{name}Tokenizer")([*special, *WORDS.split(), ".", *characters], lowercase=True)
        backbone = getattr(models, f"{name}Backbone")
    elif kind == "roberta":
        printed = [*range(33, 127), *range(161, 173), *range(174, 256)]  # byte-level BPE maps the other bytes above 255
        letters = [*map(chr, printed), *(chr(256 + number) for number in range(256 - len(printed)))]
        pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, "th", "the", "\u0120the"]
        tokenizer = models.RobertaTokenizer(
            {piece: index for index, piece in enumerate(pieces)}, ["t h", "th e", "\u0120 the"]
        )
        backbone = models.RobertaBackbone
    else:
        import sentencepiece

        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*WORDS.split(), "."]), model_writer=model, vocab_size=60, model_type="bpe",
            unk_id=0, bos_id=1, eos_id=2, minloglevel=3, hard_vocab_limit=False,
        )  # fmt: skip
        tokenizer = models.XLMRobertaTokenizer(model.getvalue())
        backbone = models.XLMRobertaBackbone
    tokenizer.save_to_preset(str(folder))
    backbone(vocabulary_size=tokenizer.vocabulary_size(), **sizes).save_to_preset(str(folder))
    return str(folder)
