"""A config becomes a finished run folder, in this order.

1.  **Command.** `train.py` composes a config and checks it (`dml.config`); `experiment.run`
    receives the typed object. `dml evaluate` calls `evaluate.evaluate`.
2.  **Protocol.** `context.RunContext` holds what the models share: config, data, device, processes.
    Its `jobs` (`dml.data.protocol`) say on which classes each is trained, validated and tested.
3.  **Dry run.** `build.Builder` binds the options to their constructors; `context.JobModel` is
    the first model, and `dml.runs.dry_run` tries a copy of its loss, optimizer and schedule on
    dummy images, before there is a folder.
4.  **Search**, if asked for. `search/` trains trials until there are enough; what follows uses the
    best values.
5.  **Training.** `train_jobs` claims one model after another, as other processes of the same
    run do, some of which `workers` starts: `job.JobRun` runs the loop of `dml.training`;
    `job_scores` scores evaluations and the best weights by `embeddings` and
    `dml.methods.extra_metrics`.
6.  **Figures.** `figures/` draws learning curves and, for the first model, test images.
7.  **Summary.** `summary` collects what `experiment` writes to `summary.json` last: its presence
    means that the run is finished.

`load` opens the network of a finished run. `console` prints tables.
"""
