"""Lightning's Trainer with a GeminidStrategy.

    python lightning_fit.py
    torchrun --nproc-per-node 2 lightning_fit.py
"""

import lightning.pytorch
import torch
from loop import LENGTH, VOCABULARY, WORLD_SIZE, Model
from torch import nn

from geminid.lightning import GeminidStrategy


class Module(lightning.pytorch.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = Model()

    def training_step(self, batch, number):
        tokens, = batch
        loss = nn.functional.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())
        print(f"loss {loss.item():.9g}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    tokens = torch.randint(VOCABULARY, (24, LENGTH), generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=4)
    trainer = lightning.pytorch.Trainer(
        strategy=GeminidStrategy(device_memory="1MiB"), accelerator="cpu", devices=WORLD_SIZE, max_epochs=1,
        gradient_clip_val=1.0, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False)
    trainer.fit(Module(), loader)


if __name__ == "__main__":
    main()
