"""Training loss against epochs and against wall-clock time, one colour a combination."""

from dlbench import figure_style as style

CATEGORY = "Learning"
CAPTION = """
Training loss of the runs that train for epochs: every step of the first repeat (faint), its
running mean over a twentieth of the run (line), and the loss on held-out data after each epoch
of every repeat (markers). Time counts from the start of training, evaluations included; loading
the framework and compiling the step lie before it.
"""
COMBINATION = (
    "model",
    "dataset",
    "strategy",
    "devices",
    "batch_per_device",
    "precision",
    "runtime",
)


def draw(tables, stem):
    runs = tables.runs
    runs = runs[runs["epochs"].notna() & runs["status"].isin(["ok", "unstable"])]
    evals = tables.evals
    groups = list(runs.groupby(list(COMBINATION), observed=True))
    names = [name for name in COMBINATION if runs[name].nunique() > 1] or ["devices"]
    with style.figure(2, width=5.2, height=3.8, sharey=True) as (figure, axes):
        by_epoch, by_time = axes[0]
        for index, (_, repeats) in enumerate(groups):
            looks = style.looks(index)
            first = repeats.sort_values("repeat").iloc[0]
            _curve(by_epoch, by_time, tables.steps(first["run_id"]), looks, _label(first, names))
            held_out = evals[evals["run_id"].isin(repeats["run_id"])]
            for axis, x in ((by_epoch, "epoch"), (by_time, "t_s")):
                axis.plot(
                    held_out[x], held_out["loss"], looks["marker"], color=looks["color"], ms=4
                )
        if groups:
            by_epoch.legend(loc="best")
            by_epoch.set_yscale("log")
            by_epoch.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            by_epoch.yaxis.set_minor_formatter(style.NullFormatter())
            subtitle = ", ".join(
                f"{model} on {dataset}"
                for model, dataset in sorted(
                    {(r["model"], r["dataset"]) for _, r in runs.iterrows()}
                )
            )
        else:
            subtitle = "no run of this study trains for epochs"
        by_epoch.set_ylabel("loss")
        by_epoch.set_xlabel("epochs")
        by_time.set_xlabel("wall-clock time, s")
        style.heading(by_epoch, "Loss by epoch", subtitle)
        style.heading(by_time, "Loss by time", "line: training \u00b7 markers: held-out data")
        style.save(figure, stem)


def _curve(by_epoch, by_time, steps, looks, label):
    """The loss of one run, the mean over its ranks, raw and smoothed."""
    merged = steps.groupby("step").agg({"loss": "mean", "t_s": "max", "epoch": "first"})
    per_epoch = len(merged) / merged["epoch"].max()
    epochs = merged.index / per_epoch
    window = max(1, len(merged) // 20)
    smooth = merged["loss"].rolling(window, min_periods=1).mean()
    for axis, x in ((by_epoch, epochs), (by_time, merged["t_s"])):
        axis.plot(x, merged["loss"], color=looks["color"], alpha=0.2, lw=0.8)
        axis.plot(
            x, smooth, color=looks["color"], linestyle=looks["linestyle"], label=label, zorder=3
        )


def _label(row, names):
    words = {
        "devices": lambda n: f"{n} device{'s' if n > 1 else ''}",
        "batch_per_device": lambda n: f"batch {n}",
    }
    return ", ".join(str(words.get(name, str)(row[name])) for name in names)
