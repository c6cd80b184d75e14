import deepspeed

CPU = {"device": "cpu"}
config = {"train_micro_batch_size_per_gpu": BATCH, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
          "zero_force_ds_cpu_optimizer": False,
          "zero_optimization": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU}}
model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
for tokens in batches():
    loss = model(tokens)
    model.backward(loss)
    model.step()
    report(loss)
