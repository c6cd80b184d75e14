"""Hugging Face's Trainer with a device too small for its model. This example makes its model and data; yours come from
from_pretrained and datasets.

    python hugging_face.py
    torchrun --nproc-per-node 2 hugging_face.py
"""

import tempfile

import torch
import transformers

import geminid.transformers


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, number):
        tokens = torch.randint(1, 96, (16,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": tokens, "labels": tokens}


class Print(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in logs:
            print(f"loss {float(logs['loss']):.9g}")


def main():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
                                      vocab_size=96, max_position_embeddings=32)
    model = transformers.LlamaForCausalLM(config)
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(folder, use_cpu=True, per_device_train_batch_size=4, max_steps=6,
                                              learning_rate=1e-3, logging_steps=1, save_strategy="no", report_to="none",
                                              disable_tqdm=True)
        trainer = geminid.transformers.Trainer(model, args, train_dataset=Sentences(), callbacks=[Print()],
                                               device_memory="1MiB")
        trainer.train()


if __name__ == "__main__":
    main()
