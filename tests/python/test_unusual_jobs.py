"""Jobs with different kinds of steps, in less than a third of the memory that their state needs, compared with torch."""

import copy

import pytest
import torch
import torch.nn.functional as F
import twins
from models import LENGTH, VOCABULARY, WIDTH, make
from steps import one_batch
from torch import nn

PAIR, HEADS, SEQUENCES, RESIDUES = 32, 4, 4, 10
LOSS, NORM = 2e-6, 1e-6  # relative; a feedback loss is a mean of numbers of both signs


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    """Attention over the second last dimension. `bias` is added to the scores of each head."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), linear(width, 3 * width), linear(width, width)

    def forward(self, x, bias=None):
        *outer, length, width = x.shape
        q, k, v = (part.view(*outer, length, HEADS, width // HEADS).transpose(-3, -2)
                   for part in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return x + self.out(mixed.transpose(-3, -2).reshape(x.shape))


class Transition(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), linear(width, 4 * width), linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class Triangle(nn.Module):
    """Updates each pair from the pairs of both residues with a third residue."""

    def __init__(self, equation):
        super().__init__()
        self.equation = equation
        self.norm, self.left, self.right = nn.LayerNorm(PAIR), linear(PAIR, 2 * PAIR), linear(PAIR, 2 * PAIR)
        self.out = linear(PAIR, PAIR)

    def forward(self, pair):
        x = self.norm(pair)
        left, right = (F.glu(project(x), -1) for project in (self.left, self.right))
        return pair + self.out(torch.einsum(self.equation, left, right))


class EvoformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = linear(PAIR, HEADS)
        self.rows, self.columns, self.transition = Attention(WIDTH), Attention(WIDTH), Transition(WIDTH)
        self.left, self.right, self.outer = linear(WIDTH, 4), linear(WIDTH, 4), linear(16, PAIR)
        self.outgoing, self.incoming = Triangle("ikc,jkc->ijc"), Triangle("kic,kjc->ijc")
        self.pair_transition = Transition(PAIR)

    def forward(self, msa, pair):
        msa = self.rows(msa, self.bias(pair).permute(2, 0, 1))
        msa = self.columns(msa.transpose(0, 1)).transpose(0, 1)
        msa = self.transition(msa)
        product = torch.einsum("sic,sjd->ijcd", self.left(msa), self.right(msa)) / SEQUENCES
        pair = pair + self.outer(product.flatten(-2))
        return msa, self.pair_transition(self.incoming(self.outgoing(pair)))


class Folding(nn.Module):
    """Stacks that run again on their own results. The caller chooses the number of cycles and whether further sequences come
    first. Only the last cycle has a gradient."""

    def __init__(self, blocks=4):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(2 * RESIDUES, PAIR)
        self.further = nn.ModuleList(EvoformerBlock() for _ in range(2))
        self.blocks = nn.ModuleList(EvoformerBlock() for _ in range(blocks))
        self.recycled, self.recycled_pair = nn.LayerNorm(WIDTH), nn.LayerNorm(PAIR)
        self.head = linear(PAIR, 1)

    def _cycle(self, tokens, further, msa, pair):
        places = torch.arange(RESIDUES)
        first = self.positions(places[:, None] - places[None, :] + RESIDUES)
        pair = first if pair is None else first + self.recycled_pair(pair)
        if further is not None:
            extra = self.embedding(further)
            for block in self.further:
                extra, pair = block(extra, pair)
        embedded = self.embedding(tokens)
        msa = embedded if msa is None else embedded + self.recycled(msa)
        for block in self.blocks:
            msa, pair = block(msa, pair)
        return msa, pair

    def forward(self, tokens, further, distances, cycles):
        msa = pair = None
        for cycle in range(cycles):
            with torch.set_grad_enabled(torch.is_grad_enabled() and cycle == cycles - 1):
                msa, pair = self._cycle(tokens, further, msa, pair)
        return (self.head(pair + pair.transpose(0, 1)).squeeze(-1).double() - distances).pow(2).mean()


def fold(twin, number):
    generator = torch.Generator().manual_seed(number)
    tokens, further = torch.randint(0, VOCABULARY, (2, SEQUENCES, RESIDUES), generator=generator)
    distances = torch.rand(RESIDUES, RESIDUES, generator=generator)
    loss = twin.model(tokens, further if number % 2 else None, distances, cycles=1 + number % 3)
    twin.losses.append(loss.item())
    loss.backward()
    twins.finish(twin)


class Scorer(nn.Module):
    """A model that returns one number for each token."""

    def __init__(self, seed):
        super().__init__()
        self.trunk, self.head = make("llama", seed, layers=2), linear(WIDTH, 1)
        del self.trunk.head

    def forward(self, tokens):
        return self.head(self.trunk.hidden(tokens)).squeeze(-1).double()


def actors():
    """Returns the four models of reinforcement learning from feedback as one module, so that one engine places all four."""
    policy = make("gpt", seed=1)
    return nn.ModuleDict({"policy": policy, "reference": copy.deepcopy(policy).requires_grad_(False),
                          "reward": Scorer(2).requires_grad_(False), "value": Scorer(3)})


def log_probabilities(model, tokens):
    return F.log_softmax(model(tokens[:, :-1]).double(), -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


def losses_of_feedback(models, number):
    generator = torch.Generator().manual_seed(number)
    prompt = torch.randint(0, VOCABULARY, (2, LENGTH - 4), generator=generator)
    tokens = models["policy"].generate(prompt, 4)
    with torch.no_grad():
        expected = log_probabilities(models["reference"], tokens)
        returns = models["reward"](tokens)[:, 1:]
        advantages = returns - models["value"](tokens)[:, 1:]
    said = log_probabilities(models["policy"], tokens)
    policy_loss = (-advantages * said + 0.1 * (said - expected).pow(2)).mean()
    value_loss = (models["value"](tokens)[:, 1:] - returns).pow(2).mean()
    return policy_loss, value_loss


def learn_apart(twin, number):
    policy_loss, value_loss = losses_of_feedback(twin.model, number)
    policy_loss.backward()
    value_loss.backward()
    twin.losses += [policy_loss.item(), value_loss.item()]
    twins.finish(twin)


def learn_together(twin, number):
    policy_loss, value_loss = losses_of_feedback(twin.model, number)
    (policy_loss + value_loss).backward()
    twin.losses += [policy_loss.item(), value_loss.item()]
    twins.finish(twin)


def trained(parameters):
    """Returns an optimizer without decay: torch rounds the decay factor to fp32, so a step of 1e-4 would be off by 1e-6."""
    return torch.optim.AdamW([p for p in parameters if p.requires_grad], lr=1e-4, weight_decay=0.0)


def folding():
    torch.manual_seed(0)
    return Folding()


#: The step, the trained model, the bytes of device memory, and how often the engine may replan because the order of uses
#: changes: once for each kind of step.
JOBS = {
    "folding, recycled 1 to 3 times": (fold, folding, "640KiB", 6),
    "feedback, two losses apart": (learn_apart, actors, "640KiB", 1),
    "feedback, two losses together": (learn_together, actors, "640KiB", 1),
}


def said_by(twin):
    return twin.model._geminid_keeper.engine.statistics()


@pytest.mark.parametrize("job", JOBS)
def test_job_in_a_third_of_its_state_is_that_of_torch_and_plans_survive(job):
    step, build, memory, most_replans = JOBS[job]
    both = twins.pair(build(), trained, device_memory=memory)
    twins.run(both, step, steps=12)
    twins.assert_same(both, LOSS, NORM)
    said = said_by(both[1])
    assert said["arena_bytes"] < said["model_state_bytes"] / 3
    assert said["peak_total_bytes"] <= said["arena_bytes"]
    assert said["plan"]["replans_by_cause"]["access order"] <= most_replans, said["plan"]
    twins.assert_moved(both[1], steps=12)


@pytest.mark.parametrize("step", [learn_apart, learn_together])
def test_models_that_all_fit_are_never_evicted_for_each_other(step):
    """Weights are loaded once after each update. Weights of models that only evaluate are loaded once."""
    ours = twins.pair(actors(), trained)[1]
    for number in range(3):
        step(ours, number)
    before = said_by(ours)["host_to_device_bytes"]
    for number in range(3, 6):
        step(ours, number)
    trained_bytes = 4 * sum(p.numel() for p in ours.model.parameters() if p.requires_grad)
    padding = 1 + said_by(ours)["waste_ratio"] + 0.01
    assert said_by(ours)["host_to_device_bytes"] - before <= 3 * trained_bytes * padding


class WithEmptyParameters(nn.Module):
    """A model with two empty parameters. One, which no forward uses, shows the model's device. A forward uses the other."""

    def __init__(self):
        super().__init__()
        self.anchor, self.used = nn.Parameter(torch.empty(0)), nn.Parameter(torch.empty(0, 3))
        self.model = make("gpt")

    def forward(self, tokens, labels):
        return self.model(tokens, labels) + self.used.sum()


@pytest.mark.parametrize("make_optimizer", [twins.adamw, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)])
def test_parameters_without_elements_change_nothing(make_optimizer):
    plain, ours = both = twins.pair(WithEmptyParameters(), make_optimizer)
    twins.run(both, one_batch, steps=2)
    for number, entry in ours.optimizer.state_dict()["state"].items():
        torch.testing.assert_close(entry, plain.optimizer.state_dict()["state"][number], rtol=1e-5, atol=1e-6)
    ours.optimizer.load_state_dict(plain.optimizer.state_dict())
    assert ours.model.anchor not in ours.optimizer.state and ours.model.state_dict()["anchor"].numel() == 0
    twins.run(both, one_batch, steps=2)
    twins.assert_same(both)


def test_warm_optimizer_with_parameters_without_elements_goes_on():
    model = WithEmptyParameters()
    plain = twins.Twin(model, twins.adamw(model.parameters()))
    twins.run([plain], one_batch, steps=2)
    plain.model.zero_grad()
    copied = copy.deepcopy(plain.model)
    warm = twins.adamw(copied.parameters())
    warm.load_state_dict(copy.deepcopy(plain.optimizer.state_dict()))
    ours = twins.Twin(*twins.prepared(copied, warm))
    plain.losses, plain.norms = [], []
    twins.run((plain, ours), one_batch, steps=2)
    twins.assert_same((plain, ours))
