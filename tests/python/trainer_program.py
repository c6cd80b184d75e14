"""trainer_program.py FOLDER: one rank of a run of geminid.transformers.Trainer. It writes its log."""

import pathlib
import sys

import torch

import test_trainer


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    trainer = test_trainer.ours(folder / "run", per_device_train_batch_size=2, save_strategy="steps", save_steps=4,
                                ddp_backend="gloo")
    trainer.add_callback(test_trainer.Stopper(6))
    trainer.train()
    again = test_trainer.ours(folder / "run", per_device_train_batch_size=2, save_strategy="steps", save_steps=4,
                              ddp_backend="gloo")
    again.train(resume_from_checkpoint=str(folder / "run/checkpoint-4"))
    torch.save({key: test_trainer.logged(again, key) for key in ("loss", "grad_norm", "learning_rate")},
               folder / f"rank{trainer.args.process_index}.pt")


if __name__ == "__main__":
    main()
