"""Small models that use their parameters like well-known models. Unless `dropout` is given, their results depend only on
their parameters and inputs."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, HEADS, LENGTH = 96, 64, 4, 12


class Conv1D(nn.Module):
    """GPT-2's linear layer. It saves the weight itself for its backward."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.05)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


def attention(q, k, v):
    batch, length, width = q.shape
    q, k, v = (t.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)


def loss_of(logits, labels):
    """Computes the loss in fp64, so that compared losses are not rounded to a few units of fp32."""
    return F.cross_entropy(logits.double().view(-1, VOCABULARY), labels.reshape(-1))


def dropped(x, probability):
    """Applies dropout after a sublayer of a block. With probability 0 it draws no random numbers."""
    return F.dropout(x, probability) if probability else x


class GptBlock(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = Conv1D(WIDTH, 3 * WIDTH), Conv1D(WIDTH, WIDTH)
        self.up, self.down = Conv1D(WIDTH, 4 * WIDTH), Conv1D(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + dropped(self.out(attention(*self.qkv(self.norm1(x)).chunk(3, -1))), self.dropout)
        return x + dropped(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout)


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class LlamaBlock(nn.Module):
    """A block of Llama. Its linear layers save a view of their weight for their backward."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout
        self.norm1, self.norm2 = RmsNorm(), RmsNorm()
        for name in "qkvo":
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))
        self.gate, self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        h = self.norm1(x)
        x = x + dropped(self.o(attention(self.q(h), self.k(h), self.v(h))), self.dropout)
        h = self.norm2(x)
        return x + dropped(self.down(F.silu(self.gate(h)) * self.up(h)), self.dropout)


class Model(nn.Module):
    """Embeddings, blocks and a head. `order`: the order of the blocks, for each call."""

    def __init__(self, block, layers=3, tied=False, outer=False, reentrant=None, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.blocks = nn.ModuleList(block(dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.tied, self.reentrant, self.order = tied, reentrant, None
        if tied == "shared":
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.head.weight = self.embedding.weight
        elif not tied:
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02) if outer else None

    def _block(self, block, x):
        if self.reentrant is None or not torch.is_grad_enabled():
            return block(x)
        return checkpoint(block, x, use_reentrant=self.reentrant)

    def hidden(self, tokens):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions[:tokens.shape[1]]
        for i in self.order or range(len(self.blocks)):
            x = self._block(self.blocks[i], x)
        return self.norm(x)

    def logits(self, tokens):
        hidden = self.hidden(tokens)
        # Weights tied by hand: the head uses the weight outside of its module.
        return F.linear(hidden, self.embedding.weight) if self.tied is True else self.head(hidden)

    def forward(self, tokens, labels=None):
        logits = self.logits(tokens)
        if labels is None:
            return logits
        return loss_of(logits, labels)

    @torch.no_grad()
    def generate(self, tokens, count):
        for _ in range(count):
            tokens = torch.cat([tokens, self(tokens[:, -LENGTH:])[:, -1:].argmax(-1)], 1)
        return tokens


BLOCKS = {"gpt": GptBlock, "llama": LlamaBlock}


def make(kind, seed=0, **options):
    """Makes a model. Its norms do not begin as ones: then each step would round all elements alike."""
    torch.manual_seed(seed)
    model = Model(BLOCKS[kind], **options)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.LayerNorm, RmsNorm)):
                module.weight.add_(0.1 * torch.randn(WIDTH))
    return model


def batch(seed, size=2):
    generator = torch.Generator().manual_seed(1000 + seed)
    tokens = torch.randint(0, VOCABULARY, (size, LENGTH + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]
