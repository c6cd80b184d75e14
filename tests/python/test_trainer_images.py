"""geminid-train beside transformers' ViT: a folder that transformers saved has the same loss, gradients and accuracy in both,
and what geminid-train exports is the same model for transformers again."""

import json
import os
import pathlib
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

TRAIN = pathlib.Path(os.environ["GEMINID_DAEMON"]).resolve().with_name("geminid-train")
IMAGES = 6

SHAPE = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, image_size=12, patch_size=4,
             num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MODELS = {
    "vit": {},
    "vit, grayscale, one patch": dict(num_channels=1, patch_size=12),
    "vit, relu, no biases of queries": dict(hidden_act="relu", qkv_bias=False),
    "vit, gelu_new, another epsilon": dict(hidden_act="gelu_new", layer_norm_eps=1e-5),
}


def make(name):
    """A model whose every weight matters, gains and biases that are not 1 and 0."""
    config = transformers.ViTConfig(**{**SHAPE, **MODELS[name]})
    config._attn_implementation = "eager"
    model = transformers.ViTForImageClassification(config)
    generator = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter + 0.1 * noise if parameter.dim() == 1 else 0.2 * noise)
    return model.float().eval()


def images_for(model, folder, **more):
    """Images of bytes in a file of their own, and what the model reads of them."""
    config, generator = model.config, torch.Generator().manual_seed(1)
    shape = (IMAGES, config.num_channels, config.image_size, config.image_size)
    images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 5, (IMAGES,), generator=generator)
    save_file({"images": images, "labels": labels, **more}, folder / "images.safetensors")
    mean, std = (more.get(name, torch.full((config.num_channels,), 0.5)).view(-1, 1, 1) for name in ("mean", "std"))
    return (images.float() / 255 - mean) / std, labels


def command(*arguments):
    return subprocess.run([TRAIN, *map(str, arguments)], capture_output=True, text=True)


def train(*arguments):
    done = command(*arguments)
    assert done.returncode == 0, done.stderr


def measured(folder, *more):
    train("--load", folder / "saved", "--images", folder / "images.safetensors", "--batch", IMAGES, "--eval-only",
          "--validation-batches", 1, "--dtype", "fp32", "--report", folder / "report", *more)
    return json.loads((folder / "report").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_loss_gradients_and_export_are_those_of_transformers(name, tmp_path):
    model = make(name)
    pixels, labels = images_for(model, tmp_path)
    model.save_pretrained(tmp_path / "saved")
    rate = 0.25
    train("--load", tmp_path / "saved", "--images", tmp_path / "images.safetensors", "--batch", IMAGES, "--steps", 1,
          "--sampling", "sequential", "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--lr", rate,
          "--schedule", "constant", "--warmup-steps", 0, "--clip-norm", 0, "--dtype", "fp32", "--report",
          tmp_path / "report", "--export", tmp_path / "exported", "--export-dtype", "fp32")
    loss = torch.nn.functional.cross_entropy(model(pixels).logits, labels)
    loss.backward()
    assert json.loads((tmp_path / "report").read_text())["loss"][0] == pytest.approx(loss.item(), rel=1e-6)

    exported = load_file(tmp_path / "exported" / "model.safetensors")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert {key: value.shape for key, value in exported.items()} == {key: value.shape for key, value in saved.items()}
    again = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "exported",
                                                                         attn_implementation="eager").eval()
    assert type(again) is type(model) and again.config.num_labels == 5
    after = dict(again.named_parameters())  # whatever this version calls them in memory
    for key, parameter in model.named_parameters():
        gradient = (parameter.detach() - after[key].detach()) / rate
        scale = parameter.grad.abs().max().item()
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-4 * scale + 2e-6, msg=lambda m: f"{key}: {m}")


def test_normalisation_and_accuracy_are_those_of_transformers(tmp_path):
    model = make("vit")
    moments = dict(mean=torch.tensor([0.485, 0.456, 0.406]), std=torch.tensor([0.229, 0.224, 0.225]))
    model.save_pretrained(tmp_path / "saved")
    for more in ({}, moments):
        pixels, labels = images_for(model, tmp_path, **more)
        with torch.no_grad():
            logits = model(pixels).logits
        labels[:4] = logits.argmax(-1)[:4]
        right = (logits.argmax(-1) == labels).double().mean().item()
        stored = load_file(tmp_path / "images.safetensors")
        save_file({**stored, "labels": labels}, tmp_path / "images.safetensors")
        of_bytes = measured(tmp_path)
        assert of_bytes["validation_loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-6)
        assert of_bytes["accuracy"] == right
        save_file({"images": pixels, "labels": labels}, tmp_path / "images.safetensors")
        of_floats = measured(tmp_path)
        assert of_floats["validation_loss"] == pytest.approx(of_bytes["validation_loss"], rel=1e-6)


# As google/vit-base-patch16-224-in21k was published: the names of the base model, a pooler, and no classifier.
def test_a_folder_of_the_base_model_is_read_with_a_new_classifier(tmp_path):
    model = make("vit")
    images_for(model, tmp_path)
    model.save_pretrained(tmp_path / "saved")
    file = tmp_path / "saved" / "model.safetensors"
    tensors = {key.removeprefix("vit."): value for key, value in load_file(file).items() if not key.startswith("classifier")}
    tensors["pooler.dense.weight"] = torch.ones(32, 32)
    save_file(tensors, file, metadata={"format": "pt"})
    usual = ("--load", tmp_path / "saved", "--images", tmp_path / "images.safetensors", "--batch", 2, "--steps", 1)
    refused = command(*usual)
    assert refused.returncode == 2 and "has no classifier ('classifier.weight'); give --classes" in refused.stderr
    train(*usual, "--classes", 5, "--freeze", "vit.*", "--dtype", "fp32", "--export", tmp_path / "exported",
          "--export-dtype", "fp32")
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert exported["classifier.weight"].shape == (5, 32) and exported["classifier.weight"].abs().max() > 0
    for key, value in tensors.items():
        if not key.startswith("pooler"):
            assert torch.equal(exported["vit." + key], value), key


def test_what_users_of_images_run_into_is_said(tmp_path):
    model = make("vit")
    pixels, labels = images_for(model, tmp_path)
    model.save_pretrained(tmp_path / "saved")

    def refusal(images, its_labels=labels, *more):
        save_file({"images": images.contiguous(), "labels": its_labels}, tmp_path / "other.safetensors")
        done = command("--load", tmp_path / "saved", "--images", tmp_path / "other.safetensors", "--batch", 2, *more)
        assert done.returncode == 2, done.stderr
        return done.stderr

    assert "of 6 x 6 pixels, and the model reads 12 x 12 (image_size)" in refusal(pixels[..., ::2, ::2])
    assert "of 1 channel as grayscale images have" in refusal(pixels[:, :1])
    assert "images.permute(0, 3, 1, 2)" in refusal(pixels.permute(0, 2, 3, 1))
    assert "has the label 6 at image 0, and the model has 5 classes" in refusal(pixels, labels + 6 - labels[0])
    broken = pixels.clone()
    broken[3, 1, 2, 5] = float("nan")
    assert "a pixel that is NaN, of image 3 at channel 1, row 2, column 5" in refusal(broken)
    assert "the model that is loaded reads images of 12 x 12 pixels" in refusal(pixels, labels, "--image-size", 16)
    assert "the patch size (5) must divide the image size (32)" in refusal(pixels, labels, "--model", "vit-tiny",
                                                                             "--patch-size", 5)
    assert "classifies images and writes no text" in command("generate", "--load", tmp_path / "saved", "--prompt", "a").stderr
