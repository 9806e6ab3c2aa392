"""Train LeNet-5 on random images with MXNet, as an external trainer; its Speedometer is the log.

The layers are those of lenet5.py in workflow_scripts/dlbench/trainer/keras/models.
Needs mxnet 1.9 (envs/mxnet).
"""

import argparse
import logging
import os

WINDOW = 10  # batches between two lines of the log


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-per-device", type=int, required=True, metavar="N")
    parser.add_argument("--devices", type=int, default=1, help="CPU devices of one process")
    parser.add_argument("--threads-per-device", type=int, default=1)
    parser.add_argument("--warmup-steps", type=int, default=10)
    parser.add_argument("--steps", type=int, required=True, help="measured")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    threads = args.devices * args.threads_per_device
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    # MXNet reads these when it is loaded.
    os.environ["OMP_NUM_THREADS"] = str(args.threads_per_device)
    os.environ["MXNET_CPU_WORKER_NTHREADS"] = str(threads)
    train(args)


def train(args):
    import mxnet as mx

    logging.basicConfig(level=logging.INFO)
    mx.random.seed(args.seed)
    global_batch = args.batch_per_device * args.devices
    batches = args.warmup_steps + args.steps + 1  # the Speedometer does not time the first
    images = mx.nd.random.uniform(shape=(global_batch, 1, 32, 32))
    labels = mx.nd.random.randint(0, 10, shape=(global_batch,)).astype("float32")
    module = mx.mod.Module(lenet5(mx), context=[mx.cpu(n) for n in range(args.devices)])
    module.bind([("data", images.shape)], [("softmax_label", labels.shape)])
    module.init_params(mx.initializer.Xavier())
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": args.learning_rate})
    metric = mx.metric.create(["acc", "ce"])
    speed = mx.callback.Speedometer(global_batch, WINDOW)
    batch = mx.io.DataBatch([images], [labels])
    for number in range(batches):
        module.forward_backward(batch)
        module.update()
        module.update_metric(metric, batch.label)  # waits for the computation
        speed(mx.model.BatchEndParam(0, number, metric, None))


def lenet5(mx):
    net = mx.sym.Variable("data")
    for maps in (6, 16):
        net = mx.sym.tanh(mx.sym.Convolution(net, kernel=(5, 5), num_filter=maps))
        net = mx.sym.Pooling(net, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    net = mx.sym.tanh(mx.sym.Convolution(net, kernel=(5, 5), num_filter=120))
    net = mx.sym.tanh(mx.sym.FullyConnected(mx.sym.flatten(net), num_hidden=84))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10), name="softmax")


if __name__ == "__main__":
    main()
