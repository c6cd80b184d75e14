from torch.distributed.fsdp import fully_shard

torch.distributed.init_process_group(BACKEND)
mesh = torch.distributed.device_mesh.init_device_mesh(DEVICE, (1,))
model = make_model().to(DEVICE)
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for tokens in batches():
    loss = model(tokens)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    report(loss)
