"""Defines the special ids, which have the same meaning in every vocabulary."""

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2
L2R_ID = 3
R2L_ID = 4
CONTROL_SYMBOLS = ("<l2r>", "<r2l>", *(f"<reserved_{i}>" for i in range(6)))
FIRST_TEXT_ID = 3 + len(CONTROL_SYMBOLS)
# The written forms of the first ids, for tables and figures.
SPECIAL_PIECES = ("<pad>", "</s>", "<unk>", *CONTROL_SYMBOLS)
