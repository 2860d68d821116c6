"""tensor2tensor's hyper-parameters that t2t_ext does not have, with what takes their place.

Whoever brings a command line along from tensor2tensor gets the answer instead of "unknown key".
"""

from collections.abc import Mapping

_ALWAYS_SO = "it is always so; leave it out."
_NOT_TEXT = "it is not for translation; leave it out."
_SHAPES = "batches are sized by tokens: batch_size, batch_tokens and batch_shapes."
_CUT = "pairs longer than max_length are left out of training; inputs are cut at max_input_length of --decode_hparams."
_TYPE = "precision=float32, mixed_bfloat16 or mixed_float16 sets the type of the computations."
_SAMPLED_OUTPUT = "it is for decoding: use --decode_hparams of t2t_ext-decoder."
_SAMPLING = "training is always on the references (teacher forcing); leave it out."

HPARAMS: Mapping[str, str] = {
    "activation_dtype": _TYPE,
    "attention_dropout_broadcast_dims": "every weight has its own dropout mask; leave it out.",
    "batch_shuffle_size": "every epoch's batches are shuffled completely, by --random_seed; leave it out.",
    "causal_decoder_self_attention": _ALWAYS_SO,
    "daisy_chain_variables": _ALWAYS_SO,
    "dropout": "use layer_prepostprocess_dropout, attention_dropout and relu_dropout.",
    "eval_drop_long_sequences": "evaluation never leaves a pair out; leave it out.",
    "ffn_layer": "use ffn_activation (relu, gelu, swish, glu, geglu, swiglu).",
    "grad_noise_scale": "no noise is added to gradients; leave it out.",
    "layer_prepostprocess_dropout_broadcast_dims": "every unit has its own dropout mask; leave it out.",
    "learning_rate_cosine_cycle_steps": "use learning_rate_schedule=...*cosdecay with learning_rate_decay_steps.",
    "learning_rate_decay_scheme": "use learning_rate_schedule (legacy is T2T's noam).",
    "learning_rate_decay_staircase": "decay is smooth; leave it out.",
    "max_input_seq_length": _CUT,
    "max_relative_position": "positions are sinusoids: pos=timing or none.",
    "max_target_seq_length": _CUT,
    "min_length": "short pairs are dropped when the data is generated; leave it out.",
    "mixed_precision_optimizer_loss_scaler": "precision=mixed_float16 scales the loss by itself; leave it out.",
    "moe_hidden_sizes": "there are no mixtures of experts; leave it out.",
    "norm_type": "the norm is layer norm; leave it out.",
    "num_encoder_layer": "the name is num_encoder_layers.",
    "num_decoder_layer": "the name is num_decoder_layers.",
    "optimizer_adafactor_factored": _ALWAYS_SO,
    "optimizer_multistep_accumulate_steps": "use gradient_accumulation_steps with a batch_size that much larger.",
    "optimizer_zero_grads": _ALWAYS_SO,
    "parameter_attention_key_channels": "use attention_key_channels.",
    "parameter_attention_value_channels": "use attention_value_channels.",
    "prepend_mode": "the source is encoded by itself; leave it out.",
    "pretrained_model_dir": "use --warm_start_from=RUN.",
    "proximity_bias": "there is none; leave it out.",
    "relu_dropout_broadcast_dims": "every unit has its own dropout mask; leave it out.",
    "sampling_keep_top_k": _SAMPLED_OUTPUT,
    "sampling_method": _SAMPLED_OUTPUT,
    "sampling_temp": _SAMPLED_OUTPUT,
    "scheduled_sampling_prob": _SAMPLING,
    "self_attention_type": "another kind of self-attention is another --model (see --registry_help).",
    "shared_source_target_embedding": "the name is shared_embedding.",
    "shared_embedding_and_softmax": "the name is shared_embedding_and_softmax_weights.",
    "slice_dtype": _TYPE,
    "split_to_length": _NOT_TEXT,
    "symbol_dropout": "no words are dropped; leave it out.",
    "symbol_modality_num_shards": "the embedding is one matrix; leave it out.",
    "symbol_modality_skip_top": _NOT_TEXT,
    "tpu_enable_host_call": "use --distribution=tpu.",
    "use_fixed_batch_size": _SHAPES,
    "use_pad_remover": "padding never changes a result; leave it out.",
    "vocab_divisor": "use the --vocab_size of t2t_ext-datagen.",
    "warm_start_from_second": "use --warm_start_from=RUN, one run.",
    "weight_dtype": "variables are float32 always; precision sets the type of the computations.",
    "weight_noise": "no noise is added to weights; leave it out.",
}

_ONE_FILE = "one process decodes; its threads use all cores."

DECODE_HPARAMS: Mapping[str, str] = {
    "block_size": _NOT_TEXT,
    "border_percent": _NOT_TEXT,
    "decode_in_memory": "the decoder always holds its input in memory; leave it out.",
    "decode_reference": "use the flag --decode_reference=FILE.",
    "decode_timeout_mins": "the decoder decodes one checkpoint and ends; leave it out.",
    "decode_to_file": "use the flag --decode_to_file=FILE.",
    "delimiter": "input is one sentence a line; leave it out.",
    "display_decoded_images": _NOT_TEXT,
    "eos_penalty": "it had no effect in T2T's search; leave it out.",
    "export_extra_infer_outputs": "t2t_ext-exporter writes signatures for n-best lists and scores.",
    "force_decode_length": "use length_limit with max_length_ratio and max_length_offset.",
    "frames_per_second": _NOT_TEXT,
    "guess_and_check_epsilon": _NOT_TEXT,
    "guess_and_check_top_k": _NOT_TEXT,
    "identity_output": _NOT_TEXT,
    "insertion_parallel": _NOT_TEXT,
    "log_results": "the decoder shows its progress; leave it out.",
    "max_display_decodes": _NOT_TEXT,
    "max_display_outputs": _NOT_TEXT,
    "max_input_size": "use max_input_length.",
    "mlperf_decode_step": "BLEU is measured while training: --local_eval_frequency of t2t_ext-trainer.",
    "mlperf_success": "BLEU is measured while training: --local_eval_frequency of t2t_ext-trainer.",
    "mlperf_threshold": "use --eval_early_stopping_metric of t2t_ext-trainer.",
    "multiproblem_task_id": _NOT_TEXT,
    "num_decodes": "num_hypotheses asks for several translations, or several samples with sampling_method=random.",
    "num_samples": "all input is decoded; shorten the input file instead.",
    "save_images": _NOT_TEXT,
    "shard_google_format": _ONE_FILE,
    "shard_id": _ONE_FILE,
    "shards": _ONE_FILE,
    "shards_start_offset": _ONE_FILE,
    "skip_eos_postprocess": "translations always end before the end-of-sentence token; leave it out.",
    "summaries_log_dir": "the decoder writes no summaries; BLEU is printed with its signature.",
    "vgg_ckpt_path": _NOT_TEXT,
}
