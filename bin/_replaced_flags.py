"""tensor2tensor's flags that t2t_ext's commands do not have, with what takes their place.

Whoever brings a command line along from tensor2tensor gets an answer instead of "unknown flag". A flag that a
command does have is never looked up here.
"""

from collections.abc import Mapping

_LEAVE = "leave it out."
_ONE_MACHINE = "--distribution=mirrored trains on all devices of the machine; CUDA_VISIBLE_DEVICES chooses them."
_WORKERS = "--distribution=multi_worker_mirrored trains on the workers that TF_CONFIG names; " + _LEAVE
_NO_SERVERS = "there are no parameter servers: --distribution=multi_worker_mirrored with TF_CONFIG."
_TPU = "use --distribution=tpu --tpu=ADDRESS."
_CLOUD = "t2t_ext starts no machines: start it on the machine itself; " + _LEAVE
_TUNE = "there is no tuner: start t2t_ext-trainer once for each --hparams."
_TRAINER_SAVES = "checkpoints are counted in steps: one with each evaluation, --local_eval_frequency."
_DECODER = "use t2t_ext-decoder --output_dir=RUN."
_EXPORTER = "use t2t_ext-exporter --output_dir=RUN --export_dir=DIR."
_STORED = "it is stored in the run: --output_dir=RUN is enough; " + _LEAVE
_TRAINING = "it is t2t_ext-trainer's; " + _LEAVE
_REGISTRY_HELP = "use t2t_ext-trainer --registry_help."
_NO_SESSION = "it was a setting of TensorFlow 1's sessions; " + _LEAVE
_SCORES_ALL = "t2t_ext-translate-all translates and scores every checkpoint, with curves for TensorBoard."
_PROFILE = "TensorBoard's profiler (tensorboard --logdir=RUN) can watch a running trainer."

# absl's flags for help.
_ABSL = {
    "helpfull": "use --help.",
    "helpshort": "use --help.",
    "helpxml": "use --help.",
}

# utils/flags.py and t2t_trainer.py: the trainer's, which decoder, exporter and eval take too.
_TRAINER = {
    "autotune_max_trials": _TUNE,
    "autotune_maximize": _TUNE,
    "autotune_objective": _TUNE,
    "autotune_parallel_trials": _TUNE,
    "cloud_mlengine": _CLOUD,
    "cloud_mlengine_master_type": _CLOUD,
    "cloud_tpu_name": _TPU,
    "dbgprofile": _PROFILE,
    "decode_from_file": _DECODER,
    "decode_reference": "BLEU is measured at each evaluation; for other files " + _DECODER,
    "decode_to_file": _DECODER,
    "enable_graph_rewriter": _NO_SESSION,
    "eval_run_autoregressive": "BLEU always comes from real translations of the development set; " + _LEAVE,
    "eval_steps": "evaluation always takes the whole development set; " + _LEAVE,
    "eval_throttle_seconds": "evaluation comes every --local_eval_frequency steps, without delay; " + _LEAVE,
    "eval_timeout_mins": "the trainer evaluates by itself and waits for no checkpoint; " + _LEAVE,
    "eval_use_test_set": "score the test set with t2t_ext-decoder --output_dir=RUN --split=test.",
    "export_saved_model": _EXPORTER,
    "export_saved_model_api_version": _EXPORTER,
    "gpu_automatic_mixed_precision": 'use --hparams="precision=mixed_float16" or "precision=mixed_bfloat16".',
    "gpu_order": "use the environment variable CUDA_VISIBLE_DEVICES.",
    "hparams_range": _TUNE,
    "iterations_per_loop": "evaluations and checkpoints follow --local_eval_frequency; " + _LEAVE,
    "job-dir": _CLOUD,
    "job_dir": _CLOUD,
    "keep_checkpoint_every_n_hours": "--keep_checkpoint_max=0 keeps all; the best one is always kept in RUN/best.",
    "log_device_placement": _NO_SESSION,
    "master": _WORKERS,
    "optionally_use_dist_strat": "use --distribution.",
    "profile": _PROFILE,
    "ps_gpu": _NO_SERVERS,
    "ps_job": _NO_SERVERS,
    "ps_replicas": _NO_SERVERS,
    "save_checkpoints_secs": _TRAINER_SAVES,
    "schedule": "t2t_ext-trainer trains and evaluates; decode with t2t_ext-decoder, which also scores (--split=dev).",
    "std_server_protocol": _WORKERS,
    "sync": "training is always synchronous; " + _LEAVE,
    "tfdbg": "set tf.debugging.enable_check_numerics in a module of --t2t_usr_dir.",
    "tpu_infeed_sleep_secs": _TPU,
    "tpu_job_name": _TPU,
    "tpu_num_shards": "--distribution=tpu uses all cores; batch_size is that of one; " + _LEAVE,
    "use_guarantee_const_getter": _NO_SESSION,
    "use_tpu": _TPU,
    "use_tpu_estimator": _TPU,
    "worker_gpu": _ONE_MACHINE + " batch_size is that of one device.",
    "worker_gpu_memory_fraction": "memory is taken as it is needed; " + _LEAVE,
    "worker_id": _WORKERS,
    "worker_job": _WORKERS,
    "worker_replicas": _WORKERS,
    "xla_jit_level": "use --xla_compile.",
}

# What the trainer keeps: a command that only reads a run takes it from there, or has no use for it.
_KEPT_BY_TRAINER = {
    **dict.fromkeys(("data_dir", "hparams", "hparams_set", "model", "problem", "t2t_usr_dir"), _STORED),
    **dict.fromkeys(
        (
            "deterministic",
            "eval_early_stopping_metric",
            "eval_early_stopping_metric_delta",
            "eval_early_stopping_metric_minimize",
            "eval_early_stopping_steps",
            "generate_data",
            "keep_checkpoint_max",
            "local_eval_frequency",
            "log_step_count_steps",
            "random_seed",
            "tmp_dir",
            "train_steps",
            "warm_start_from",
            "warm_start_optimizer",
        ),
        _TRAINING,
    ),
    "decode_hparams": "it is t2t_ext-decoder's and t2t_ext-exporter's.",
    "inter_op_parallelism_threads": "TensorFlow chooses; " + _LEAVE,
    "intra_op_parallelism_threads": "TensorFlow chooses; " + _LEAVE,
    "registry_help": _REGISTRY_HELP,
}

_READS_A_RUN = {
    **_TRAINER,
    **_KEPT_BY_TRAINER,
    "iterations_per_loop": _TRAINING,
    "keep_checkpoint_every_n_hours": _TRAINING,
    "save_checkpoints_secs": _TRAINING,
    "schedule": _TRAINING,
    "sync": _TRAINING,
    "worker_gpu": "one device is used; CUDA_VISIBLE_DEVICES chooses it; " + _LEAVE,
    **dict.fromkeys(("use_tpu", "use_tpu_estimator", "cloud_tpu_name", "tpu_num_shards", "tpu_job_name"), _TRAINING),
    **dict.fromkeys(("tpu_infeed_sleep_secs", "optionally_use_dist_strat", "xla_compile", "xla_jit_level"), _TRAINING),
    "gpu_automatic_mixed_precision": 'use --decode_hparams="precision=mixed_float16" or "precision=mixed_bfloat16".',
    **dict.fromkeys(("ps_gpu", "ps_job", "ps_replicas", "worker_job", "worker_replicas", "worker_id"), _TRAINING),
    **dict.fromkeys(("master", "std_server_protocol"), _TRAINING),
}

_DATAGEN = {
    "env_problem_batch_size": "there are no problems of reinforcement learning; " + _LEAVE,
    "env_problem_max_env_steps": "there are no problems of reinforcement learning; " + _LEAVE,
    "exclude_problems": "name one --problem at a time.",
    "max_cases": "give a shorter file with --problem=translate_parallel_text.",
    "num_concurrent_processes": "use --num_processes.",
    "only_list": "use --registry_help.",
    "task_id": "one command generates everything, with all cores (--num_processes); " + _LEAVE,
    "task_id_end": "one command generates everything, with all cores (--num_processes); " + _LEAVE,
    "task_id_start": "one command generates everything, with all cores (--num_processes); " + _LEAVE,
}

_DECODER_FLAGS = {
    **_READS_A_RUN,
    "decode_in_memory": "input is always held in memory; " + _LEAVE,
    "decode_shards": "one process decodes with all cores; cut the input into files to use several machines.",
    "disable_grappler_optimizations": _NO_SESSION,
    "eval_use_test_set": "use --split=test.",
    "keep_timestamp": "a translation has its own time; " + _LEAVE,
}

_EXPORTER_FLAGS = {
    **_READS_A_RUN,
    "as_text": "a SavedModel is always binary; " + _LEAVE,
    "export_as_tfhub": "the SavedModel is loaded with tf.saved_model.load or served by TF Serving; " + _LEAVE,
    "export_saved_model": "this command always writes a SavedModel; " + _LEAVE,
    "export_saved_model_api_version": "this command always writes a TensorFlow 2 SavedModel; " + _LEAVE,
}

_AVG_ALL = {
    "checkpoints": "the last --n checkpoints of --output_dir are averaged.",
    "min_steps": "the last --n checkpoints are averaged, whatever their steps; " + _LEAVE,
    "model_dir": "use --output_dir=RUN.",
    "num_last_checkpoints": "use --n.",
    "output_path": "the average is put into RUN/averaged; --checkpoint_path of t2t_ext-decoder takes it from there.",
    "prefix": "use --output_dir=RUN.",
    "problem": _STORED,
    "registry_help": _REGISTRY_HELP,
    "wait_minutes": "it averages what is there and ends; " + _LEAVE,
}

_BLEU = {
    "event_dir": _SCORES_ALL,
    "min_steps": _SCORES_ALL,
    "registry_help": _REGISTRY_HELP,
    "report_zero": _SCORES_ALL,
    "tag_suffix": _SCORES_ALL,
    "translations_dir": _SCORES_ALL,
    "wait_minutes": _SCORES_ALL,
}

_SEARCH = 'use --decode_hparams="beam_size=4,alpha=0.6".'
_TRANSLATE_ALL = {
    "alpha": _SEARCH,
    "beam_size": _SEARCH,
    "decoder_command": "it translates by itself, with the model loaded once; " + _LEAVE,
    "hparams_set": _STORED,
    "model": _STORED,
    "model_dir": "use --output_dir=RUN.",
    "problem": _STORED,
    "registry_help": _REGISTRY_HELP,
    "source": "use --decode_from_file=FILE --decode_reference=FILE, or --split=dev.",
}

_QUERY_SERVER = {
    "cloud_mlengine_model_name": "use --server=HOST:PORT of a TF Serving.",
    "cloud_mlengine_model_version": "use --server=HOST:PORT of a TF Serving.",
    "data_dir": "the exported model has its text encoders inside; " + _LEAVE,
    "problem": "the exported model has its text encoders inside; " + _LEAVE,
    "registry_help": _REGISTRY_HELP,
    "t2t_usr_dir": "the exported model is complete; " + _LEAVE,
}

_BY_COMMAND: Mapping[str, Mapping[str, str]] = {
    "t2t_ext-trainer": _TRAINER,
    "t2t_ext-datagen": _DATAGEN,
    "t2t_ext-decoder": _DECODER_FLAGS,
    "t2t_ext-exporter": _EXPORTER_FLAGS,
    "t2t_ext-avg-all": _AVG_ALL,
    "t2t_ext-bleu": _BLEU,
    "t2t_ext-compare": {"registry_help": _REGISTRY_HELP},
    "t2t_ext-query-server": _QUERY_SERVER,
    "t2t_ext-prepare": {"registry_help": _REGISTRY_HELP},
    "t2t_ext-translate-all": _TRANSLATE_ALL,
    "t2t_ext-experiment": {"registry_help": _REGISTRY_HELP},
    "t2t_ext-rerank": {"registry_help": _REGISTRY_HELP},
    "t2t_ext-analyze": {"registry_help": _REGISTRY_HELP},
}


def replaced_flags(command: str) -> Mapping[str, str]:
    """Returns T2T's flags of a command: name -> what takes its place; empty for a command of another name."""
    return {**_ABSL, **_BY_COMMAND[command]} if command in _BY_COMMAND else _ABSL
