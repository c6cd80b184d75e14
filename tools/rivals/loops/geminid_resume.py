import geminid.torch

model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = geminid.torch.prepare(model, optimizer, device_memory=DEVICE_MEMORY, resume="peers")
run = geminid.torch.resume(model)
for tokens in run.batches(batches()):
    loss = model(tokens)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    report(run.same(loss.detach()))
