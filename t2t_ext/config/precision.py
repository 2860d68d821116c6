"""Names of the types that are computed in, as users of other toolkits write them."""

# A name -> the precision, as Keras calls it: variables are float32 always.
ALIASES = {
    "fp32": "float32",
    "bf16": "mixed_bfloat16",
    "bfloat16": "mixed_bfloat16",
    "fp16": "mixed_float16",
    "float16": "mixed_float16",
}
