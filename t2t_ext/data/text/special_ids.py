"""The ids that mean the same in every vocabulary of every model trained here."""

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2
L2R_ID = 3
R2L_ID = 4
CONTROL_SYMBOLS = ("<l2r>", "<r2l>", *(f"<reserved_{i}>" for i in range(6)))
FIRST_TEXT_ID = 3 + len(CONTROL_SYMBOLS)
# How the first ids are written, for tables and pictures.
SPECIAL_PIECES = ("<pad>", "</s>", "<unk>", *CONTROL_SYMBOLS)
