"""Words that users of other programs type, and the option, choice or command that they mean."""

from __future__ import annotations

# Group → words for it.
_GROUP_WORDS = {
    "backbone": "model arch architecture net network encoder model_name",
    "data": "dataset datasets data_set",
    "loss": "criterion loss_fn loss_function losses loss_name",
    "method": "trainer algorithm",
    "optim": "optimizer optimiser opt",
    "tracking": "logger tracker logging",
}
# Option → words for it that are not its last part.
_OPTION_WORDS = {
    "+optim.groups.backbone.lr": "backbone.lr backbone_lr lr_backbone",
    "+optim.groups.head.lr": "head.lr head_lr lr_head embedder.lr",
    "embedder.head": "head",
    "tracking=wandb tracking.mode": "wandb wandb_mode",
    "backbone.weights": "checkpoint ckpt pretrained_weights weights_path init_from",
    "data.batch_size": "bs batch batchsize train_batch_size",
    "data.eval_batch_size": "test_batch_size val_batch_size",
    "data.images_per_class": "m samples_per_class instances num_instances k_per_class",
    "data.reader.per_class": "images",
    "data.root": "root data_root data_dir data_path datapath dataroot dataset_path image_dir path",
    "data.workers": "workers num_workers n_workers j loader_workers dataloader_workers",
    "embedder.freeze_batch_norm": "freeze_bn",
    "embedder.size": "embedding_size emb_size embed_dim embedding_dim emb_dim dim",
    "name": "run_name exp_name experiment_name tag display_name",
    "note": "notes comment description remark",
    "max_minutes": "time_limit timeout max_time",
    "optim.clip_norm": "grad_clip gradient_clip max_norm clip max_grad_norm gradient_clip_val",
    "optim.lr": "learning_rate base_lr learningrate eta",
    "optim.loss_lr": "proxy_lr lr_proxy lr_loss loss_learning_rate loss.lr",
    "optim.schedule": "scheduler lr_scheduler lr_schedule sched",
    "optim.warmup_epochs": "warmup warm warm_up",
    "optim.weight_decay": "wd decay l2",
    "outputs": "output output_dir out out_dir outdir save_dir log_dir logdir results workdir",
    "protocol.epochs": "num_epochs n_epochs max_epochs epoch nb_epochs",
    "protocol.evaluate_every": "eval_every val_every eval_freq eval_interval",
    "protocol.repeats": "runs num_runs n_runs num_repeats trials_per_seed",
    "protocol.select_metric": "metric monitor selection_metric",
    "protocol.steps_per_epoch": "steps iterations iters num_steps max_steps",
    "protocol.stopping.patience": "early_stop early_stopping",
    "search.trials": "n_trials num_trials",
    "seed": "random_seed manual_seed rng_seed",
    "transform.size": "image_size img_size input_size imgsize resolution crop_size",
    "transform.augmentation": "augment aug augmentations",
}
OPTION_OF = {word: option for option, words in _OPTION_WORDS.items() for word in words.split()}
GROUP_OF = {word: group for group, words in _GROUP_WORDS.items() for word in words.split()}

# Word → what to write where its value is true, or false.
_BF16 = ("precision=bf16", "precision=fp32")
SWITCHES = {
    **dict.fromkeys(("amp", "fp16", "bf16", "half", "mixed_precision", "use_amp"), _BF16),
    **dict.fromkeys(("cuda", "gpu", "use_gpu", "use_cuda"), ("device=cuda", "device=cpu")),
    **dict.fromkeys(("wandb", "use_wandb", "log_wandb"), ("tracking=wandb", "tracking=none")),
    **dict.fromkeys(("force", "restart", "rerun"), ("overwrite=true", "overwrite=false")),
    "cpu": ("device=cpu", "device=cuda"),
    "early_stop": ("protocol.stopping.patience=5", "protocol.stopping.patience=null"),
    "early_stopping": ("protocol.stopping.patience=5", "protocol.stopping.patience=null"),
    "pretrained": ("backbone.weights=imagenet", "backbone.weights=none"),
    "cross_validation": ("protocol=mlrc", "protocol=traditional"),
    "tf32": ("precision=tf32", "precision=fp32"),
}
GPU_COUNTS = {"gpus", "num_gpus", "n_gpus", "ngpu", "n_gpu", "devices", "nproc", "world_size",
              "nproc_per_node", "ngpus"}  # fmt: skip
SEED_LISTS = {"seeds", "num_seeds", "n_seeds"}

_EVALUATE = "every run scores the test classes; again: {evaluate} run=<run folder>"
# Word → sentence.
EXPLAINED = {
    **dict.fromkeys(("test", "eval", "evaluate", "eval_only", "test_only"), _EVALUATE),
    **dict.fromkeys(
        ("resume", "continue"),
        "the same command continues an unfinished run by itself; from its folder alone: "
        "{train} resume=<run folder>",
    ),
    **dict.fromkeys(
        ("config", "config_file", "cfg_file"),
        "write params=<file> for a file of option: value, or --config-dir=<folder> for your own "
        "configs",
    ),
    **dict.fromkeys(("folds", "num_folds", "n_folds", "kfold", "k_fold"), "protocol=mlrc has four"),
    **dict.fromkeys(("debug", "fast_dev_run", "dry_run"), "protocol.epochs=1 is a short run"),
    **dict.fromkeys(
        ("recall_at", "recall", "recalls", "k", "ks", "topk"),
        "{evaluate} run=<run folder> recall_at=[1,10] scores a trained run",
    ),
    "miner": "loss=ms_miner has one; any other: "
    "+loss.miner._target_=pytorch_metric_learning.miners.<class>",
}

# Group → word → choice; words without case, blanks and punctuation.
CHOICE_OF = {
    "data": {
        **dict.fromkeys(("cub200", "cub2002011", "cub2011", "birds"), "cub"),
        **dict.fromkeys(("cars196", "stanfordcars", "car", "car196"), "cars"),
        **dict.fromkeys(("stanfordonlineproducts", "onlineproducts", "products"), "sop"),
        **dict.fromkeys(("inshopclothes", "deepfashion", "deepfashioninshop"), "inshop"),
        **dict.fromkeys(("imagefolder", "images", "own"), "folder"),
    },
    "loss": {
        **dict.fromkeys(("ce", "crossentropy", "softmax", "normalizedsoftmax"), "norm_softmax"),
        **dict.fromkeys(("infonce", "simclr"), "ntxent"),
        "multisimilarityminer": "ms_miner",
        "potentialfield": "pfml",
    },
    "method": {**dict.fromkeys(("none", "baseline", "standard"), "plain"), "mixup": "metrix"},
    "backbone": {"googlenet": "bn_inception", "inceptionbn": "bn_inception", "dino": "dino_s16"},
    "tracking": dict.fromkeys(("true", "on", "online", "weightsandbiases"), "wandb")
    | dict.fromkeys(("false", "off", "disabled", "csv"), "none"),
    "search": dict.fromkeys(("true", "optuna", "bayesian", "gp", "tpe"), "bayes"),
    "protocol": {"crossvalidation": "mlrc", "realitycheck": "mlrc"},
}
