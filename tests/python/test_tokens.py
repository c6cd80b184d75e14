"""python -m geminid tokens: text becomes the files that geminid-train reads, by a tokenizer of Hugging Face."""

import array
import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest
import tokenizers

from geminid import tokens

TEXT = "the cat sat on the mat. the dog sat on the log.\n" * 40
TRAINER = pathlib.Path(os.environ["GEMINID_DAEMON"]).with_name("geminid-train")


def run(*arguments, input=None):
    return subprocess.run([sys.executable, "-m", "geminid", "tokens", *map(str, arguments)], capture_output=True, text=True,
                          check=False, input=input)


@pytest.fixture
def folder(tmp_path):
    """A tokenizer of 300 byte-level tokens as a folder of Hugging Face has it."""
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator([TEXT], vocab_size=300, special_tokens=["<end>"])
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    return tmp_path


def read(file):
    data = file.read_bytes()
    magic, version, count = struct.unpack_from("<3i", data)
    found = array.array({20240520: "H", 20240801: "I"}[magic], data[1024:])
    assert version == {20240520: 1, 20240801: 7}[magic] and len(found) == count
    return list(found)


def test_shards_are_the_documents_each_with_the_end_of_a_text(folder):
    texts = folder / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text(TEXT)
    (texts / "b.jsonl").write_text('{"text": "the cat"}\n\n{"text": ""}\n{"text": "the dog é"}\n')
    (texts / ".hidden").write_text("no")
    done = run("shards", "--tokenizer", folder, "--out", folder / "out", texts)
    assert done.returncode == 0, done.stderr
    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = made.token_to_id("<end>")
    expected = [id for text in (TEXT, "the cat", "the dog é") for id in [*made.encode(text).ids, end]]
    assert read(folder / "out/tokens_000000.bin") == expected
    assert f"{len(expected)} tokens in 1 file; train with: --shards {folder / 'out'} --vocabulary " in done.stdout


def test_shards_are_cut_at_their_size_and_lose_nothing(folder):
    tokenizer, end = tokens.open_tokenizer(folder / "tokenizer.json")
    shards, count = tokens.write_shards(tokenizer, end, [TEXT, TEXT], folder / "out", shard_tokens=100)
    files = sorted((folder / "out").iterdir())
    assert len(files) == shards and count == sum(len(read(file)) for file in files)
    whole = [*tokenizer.encode(TEXT).ids, tokenizer.token_to_id(end)] * 2
    assert [id for file in files for id in read(file)] == whole
    assert all(len(read(file)) == 100 for file in files[:-1])


def test_vocabulary_beyond_16_bits_is_written_in_32(folder):
    class Large:
        def get_vocab(self, with_added_tokens): return {"a": 1, "last": 69999}
        def encode_batch(self, batch, add_special_tokens):
            return [type("Encoded", (), {"ids": [69999, 1]}) for _ in batch]
    tokens.write_shards(Large(), None, ["x"], folder / "out")
    assert read(folder / "out/tokens_000000.bin") == [69999, 1]


def test_numbers_of_a_prompt_come_back_as_its_text(folder):
    numbers = run("encode", "--tokenizer", folder, "the cat sat")
    assert numbers.returncode == 0 and all(n.isdecimal() for n in numbers.stdout.strip().split(","))
    for written in (numbers.stdout, numbers.stdout.replace(",", " ")):
        assert run("decode", "--tokenizer", folder, input=written).stdout == "the cat sat\n"


@pytest.mark.parametrize("stored", ["truncation", "padding"])
def test_lengths_that_a_tokenizer_stores_for_batches_change_no_document(folder, stored):
    plain = tokens.open_tokenizer(folder)[0].encode(TEXT).ids
    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    if stored == "truncation":
        made.enable_truncation(16)
    else:
        made.enable_padding(length=len(plain) + 100)
    made.save(str(folder / "tokenizer.json"))
    (folder / "text").write_text(TEXT)
    assert run("shards", "--tokenizer", folder, "--out", folder / "out", folder / "text").returncode == 0
    assert read(folder / "out/tokens_000000.bin")[:-1] == plain
    assert run("encode", "--tokenizer", folder, TEXT).stdout == ",".join(map(str, plain)) + "\n"


def test_vocabulary_counts_the_numbers_that_added_tokens_leave_out(folder):
    file = json.loads((folder / "tokenizer.json").read_text())
    file["model"]["vocab"]["<far>"] = 70000
    file["added_tokens"].append({**file["added_tokens"][0], "id": 70000, "content": "<far>"})
    (folder / "tokenizer.json").write_text(json.dumps(file))
    (folder / "text").write_text("the <far> cat")
    done = run("shards", "--tokenizer", folder, "--out", folder / "out", folder / "text")
    assert done.returncode == 0, done.stderr
    assert 70000 in read(folder / "out/tokens_000000.bin")
    assert done.stdout.endswith("--vocabulary 70001\n")


@pytest.mark.parametrize("config, words", [
    ("{", "it is not a JSON object"), ("", "it is not a JSON object"), ("[]", "it is not a JSON object"),
    ('{"eos_token": 5}', '"eos_token" is 5, which is not text')])
def test_config_that_cannot_be_used_is_said_with_its_file(folder, config, words):
    (folder / "tokenizer_config.json").write_text(config)
    done = run("encode", "--tokenizer", folder, "the cat")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"tokenizer_config.json: {words}" in done.stderr


@pytest.mark.skipif(not TRAINER.exists(), reason="geminid-train is not built")
def test_shards_are_trained_on_and_a_smaller_vocabulary_is_refused(folder):
    (folder / "text").write_text(TEXT)
    assert run("shards", "--tokenizer", folder, "--out", folder / "out", folder / "text").returncode == 0
    most = max(read(folder / "out/tokens_000000.bin"))
    command = [TRAINER, "--shards", folder / "out", "--model", "gpt2-tiny", "--context", "16", "--steps", "2", "--ranks", "1"]
    fits = subprocess.run([*command, "--vocabulary", str(most + 1)], capture_output=True, text=True, check=False)
    assert fits.returncode == 0, fits.stderr
    small = subprocess.run([*command, "--vocabulary", str(most)], capture_output=True, text=True, check=False)
    assert small.returncode == 2
    assert f"has the token {most} at byte" in small.stderr and f"outside of the vocabulary of {most}" in small.stderr


@pytest.mark.parametrize("arguments, words", [
    (["shards", "--tokenizer", "{}/none", "--out", "{}/out", "{}/t"], "none: it does not exist; give --tokenizer"),
    (["shards", "--tokenizer", "{}/t", "--out", "{}/out", "{}/t"], "t: it is not a tokenizer"),
    (["shards", "--tokenizer", "{}", "--out", "{}/out", "{}/none"], "none: it does not exist; give text files"),
    (["shards", "--tokenizer", "{}", "--out", "{}/out", "{}/latin"], "latin: it is not UTF-8 at byte 1"),
    (["shards", "--tokenizer", "{}", "--out", "{}/out", "{}/bad.jsonl"], 'bad.jsonl: line 2 is not a JSON object whose "text" is a text'),
    (["shards", "--tokenizer", "{}", "--out", "{}/out", "{}/number.jsonl"], "number.jsonl: line 1 is not a JSON object"),
    (["shards", "--tokenizer", "{}", "--out", "{}/out", "{}/half.jsonl"], "half.jsonl: line 1 is not a JSON object"),
    (["shards", "--tokenizer", "{}", "--out", "{}/out", "{}/empty"], "the texts are empty"),
    (["shards", "--tokenizer", "{}", "--out", "{}/full", "{}/t"], "full: it has .bin files"),
    (["shards", "--tokenizer", "{}", "--end-token", "<no>", "--out", "{}/out", "{}/t"], "has no token '<no>'"),
    (["shards", "--tokenizer", "{}/plain", "--out", "{}/out", "{}/t"], "does not say which token ends a text"),
    (["decode", "--tokenizer", "{}"], "99999999999999999999', which is not the number of a token")])
def test_what_cannot_be_used_is_said_without_a_traceback(folder, arguments, words):
    (folder / "t").write_text("the cat")
    (folder / "latin").write_bytes(b"a\xe9")
    (folder / "bad.jsonl").write_text('{"text": "a"}\n{"txt": "b"}\n')
    (folder / "number.jsonl").write_text('{"text": 5}\n')
    (folder / "half.jsonl").write_text('{"text": "\\ud800"}\n')
    (folder / "empty").write_text("")
    (folder / "full").mkdir()
    (folder / "full/x.bin").write_bytes(b"x")
    (folder / "plain").mkdir()
    (folder / "plain/tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    done = run(*(argument.format(folder) for argument in arguments), input="1 99999999999999999999")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert words in done.stderr
    assert not list((folder / "out").glob("*.bin")) if (folder / "out").exists() else True
