import colossalai
from colossalai.booster import Booster
from colossalai.booster.plugin import GeminiPlugin
from colossalai.nn.optimizer import HybridAdam

colossalai.launch_from_torch()
model = make_model()
optimizer = HybridAdam(model.parameters(), lr=1e-3)
plugin = GeminiPlugin(placement_policy="auto", precision="bf16", max_norm=1.0)
booster = Booster(plugin=plugin)
model, optimizer, _, _, _ = booster.boost(model, optimizer)
for tokens in batches():
    loss = model(tokens)
    booster.backward(loss, optimizer)
    optimizer.step()
    optimizer.zero_grad()
    report(loss)
