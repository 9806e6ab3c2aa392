"""Lines of MLPerf's logs: those of a run, its epochs, blocks and evaluations."""

from support.logs.log_samples import mllog

START, END, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"


def lines(*events, namespace=""):
    return "".join(mllog(*event, namespace=namespace) for event in events)


def epochs(*bounds_ms, first=1):
    return lines(
        *(
            (time_ms, kind, f"epoch_{word}", None, {"epoch_num": number})
            for number, pair in enumerate(bounds_ms, start=first)
            for time_ms, kind, word in zip(pair, (START, END), ("start", "stop"), strict=True)
        )
    )


BEGIN = lines(
    (0, POINT, "submission_benchmark", "resnet", {}),
    (0, POINT, "train_samples", 1000, {}),
    (0, START, "run_start", None, {}),
)


def success(time_ms):
    return lines((time_ms, END, "run_stop", None, {"status": "success"}))


SUCCESS, SOON = success(60_000), success(12_000)


def stated(benchmark, batch, samples, *more):
    """What a run of MLPerf says of itself before it starts."""
    said = [("submission_benchmark", benchmark), ("global_batch_size", batch)]
    said += [("train_samples", samples), *more]
    points = ((0, POINT, key, value, {}) for key, value in said)
    return lines(*points, (0, START, "run_start", None, {}))


def blocks(*bounds_ms, epoch_count):
    found = ""
    for number, (started, ended) in enumerate(bounds_ms):
        first = {"first_epoch_num": number * epoch_count}
        more = first | {"epoch_count": epoch_count}
        found += lines((started, START, "block_start", None, more))
        found += lines((ended, END, "block_stop", None, first))
    return found


def evaluation(start_ms, ended_ms, epoch):
    return lines(
        (start_ms, START, "eval_start", None, {"epoch_num": epoch}),
        (ended_ms, END, "eval_stop", None, {"epoch_num": epoch}),
        (ended_ms, POINT, "eval_accuracy", 0.5, {"epoch_num": epoch}),
    )
