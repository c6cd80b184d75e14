import trainstream

model = make_model().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = trainstream.wrap(model, optimizer)
for tokens in batches():
    loss = model(tokens)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    report(loss)
