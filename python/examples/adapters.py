"""PEFT's LoRA under Hugging Face's Trainer: Geminid places the base model; the Trainer trains and saves the adapters.

    python adapters.py
"""

import tempfile

import peft
import torch
import transformers
from hugging_face import Print, Sentences

import geminid.transformers


def main():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
                                      vocab_size=96, max_position_embeddings=32)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(config),
                                peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(folder, use_cpu=True, per_device_train_batch_size=4, max_steps=6,
                                              learning_rate=1e-2, logging_steps=1, save_strategy="no", report_to="none",
                                              disable_tqdm=True)
        trainer = geminid.transformers.Trainer(model, args, train_dataset=Sentences(), callbacks=[Print()],
                                               device_memory="1MiB")
        trainer.train()
        trainer.save_model(folder)  # only adapter_model.safetensors, not the base model


if __name__ == "__main__":
    main()
