"""Names for the numeric types of computations that users of other toolkits know."""

# Name -> precision, as Keras calls it; variables are always float32.
ALIASES = {
    "fp32": "float32",
    "bf16": "mixed_bfloat16",
    "bfloat16": "mixed_bfloat16",
    "fp16": "mixed_float16",
    "float16": "mixed_float16",
}
