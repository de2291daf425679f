"""Several processes."""
import multiprocessing

import pytest

import ampc


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_process_has_one_thread(mlp, batch):
    trainer = ampc.Trainer(mlp, loss="ce", threads=2)
    loss = trainer.step(**batch).loss
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child():
        with pytest.raises(ampc.DeviceError, match="forked by a thread"):
            trainer.step(**batch)
        theirs.send(ampc.Trainer(mlp, loss="ce", threads=2).step(**batch).loss)

    process = context.Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0 and ours.recv() == loss
