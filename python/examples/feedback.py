"""Reinforcement learning from feedback: four models in one memory. The policy and the value model train. The reference
and the reward model evaluate. The policy generates between steps. One module contains all four, so one engine places them.

    python feedback.py
"""

import copy

import torch
from loop import VOCABULARY, WIDTH, Model
from torch import nn

import geminid.torch


class Scorer(Model):
    """A model that returns one number for each token."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, tokens):
        return super().forward(tokens).squeeze(-1)


@torch.no_grad()
def generate(policy, tokens, count):
    for _ in range(count):
        tokens = torch.cat([tokens, policy(tokens)[:, -1:].argmax(-1)], 1)
    return tokens


def log_probabilities(model, tokens):
    return model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


def main():
    torch.manual_seed(0)
    policy = Model()
    models = nn.ModuleDict({"policy": policy, "reference": copy.deepcopy(policy).requires_grad_(False),
                            "reward": Scorer().requires_grad_(False), "value": Scorer()})
    optimizer = torch.optim.AdamW([p for p in models.parameters() if p.requires_grad], lr=1e-3)
    models, optimizer = geminid.torch.prepare(models, optimizer, device_memory="1536KiB")

    for step in range(4):
        prompt = torch.randint(VOCABULARY, (4, 8), generator=torch.Generator().manual_seed(step))
        tokens = generate(models["policy"], prompt, 4)
        with torch.no_grad():
            expected = log_probabilities(models["reference"], tokens)
            returns = models["reward"](tokens)[:, 1:]
            advantages = returns - models["value"](tokens)[:, 1:]
        said = log_probabilities(models["policy"], tokens)
        loss = (0.1 * (said - expected).pow(2) - advantages * said).mean()
        loss = loss + (models["value"](tokens)[:, 1:] - returns).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(models.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.9g}")


if __name__ == "__main__":
    main()
