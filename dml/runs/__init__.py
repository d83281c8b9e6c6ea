"""A config becomes a finished run folder, in this order.

1.  **Command.** `train.py` composes a config and checks it (`dml.config`); `experiment.run`
    receives it as composed and as a typed object. `evaluate.py` calls `evaluate.evaluate`.
2.  **Experiment.** `experiment.Experiment` connects the processes of torchrun, makes the tracker
    and reads the summary of a finished run, if there is one.
3.  **Dry run.** `build.Builder` binds the options to their constructors (`constructor`), once per
    run; `dry_run` tries loss, head, optimizer and schedule on eight dummy images.
4.  **Search**, if asked for. `search/` trains trials until there are enough; what follows uses the
    best values.
5.  **Protocol.** `protocols.create_jobs` says which models are trained, validated and tested on
    which classes. `context.RunContext` holds what they share: config, data, device, processes.
6.  **Jobs.** `jobs/` trains the models, one after another or in parallel processes: `job.JobRun`
    builds network, method and optimizer and runs the loop of `dml.training`.
7.  **Scores.** `scores/` embeds images and scores them: at every evaluation, for the best weights
    on the test images, and for the concatenated models of a repeat.
8.  **Figures.** `figures/` draws learning curves and retrieved neighbors.
9.  **Summary.** `folder/` writes `summary.json` last: its presence means that the run is finished.

`load` opens the network of a finished run. `console` prints tables and progress.
"""
