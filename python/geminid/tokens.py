"""python -m geminid tokens shards --tokenizer FOLDER --out FOLDER TEXT...: files of tokens for `geminid-train --shards`.
python -m geminid tokens encode --tokenizer FOLDER TEXT: numbers for `geminid-train generate --prompt-tokens`.
python -m geminid tokens decode --tokenizer FOLDER: the text of the numbers on standard input.

The tokenizer is a `tokenizer.json`, or a folder of Hugging Face that has one; the package `tokenizers` reads it.
A document is a whole text file, or the "text" of a line of a file that ends with .jsonl. After each document comes
the token that ends a text.
"""

from __future__ import annotations

import argparse
import array
import importlib
import json
import os
import pathlib
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Unusable", "documents", "open_tokenizer", "write_shards"]

_OK, _USAGE = 0, 2  # docs/exit_codes.md
_HEADER_INTEGERS = 256
_SMALL_VOCABULARY = 65536
# The formats of llm.c (dev/data/data_common.py): magic, version, and the array type of a token.
_SMALL, _LARGE = (20240520, 1, "H"), (20240801, 7, "I")
_SHARD_TOKENS = 100_000_000
_BATCH_CHARACTERS = 1 << 22
_TOKENS_MAX = 1 << 32


class Unusable(ValueError):
    """What was given cannot be used; the message says what to do."""


def open_tokenizer(path: pathlib.Path) -> tuple[Any, str | None]:
    """The tokenizer of a `tokenizer.json` or of the folder that has it, and the token that ends a text as
    `tokenizer_config.json` beside it says; None where it says none. Raises Unusable."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise Unusable(f"{file}: it does not exist; give --tokenizer a tokenizer.json or a folder that has one")
    try:
        library = importlib.import_module("tokenizers")
    except ImportError:
        raise Unusable("the package 'tokenizers' is missing: pip install tokenizers") from None
    try:
        tokenizer = library.Tokenizer.from_file(str(file))
    except Exception as problem:  # the library raises nothing narrower
        raise Unusable(f"{file}: it is not a tokenizer: {problem}") from None
    # Both are for batches of one length, and stay in the file that a script saves after it made one.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, _end_token(file.with_name("tokenizer_config.json"))


def _end_token(config: pathlib.Path) -> str | None:
    if not config.is_file():
        return None
    try:
        end = json.loads(config.read_text(encoding="utf-8")).get("eos_token")
    except (ValueError, AttributeError):
        raise Unusable(f"{config}: it is not a JSON object; restore or remove it") from None
    end = end.get("content") if isinstance(end, dict) else end
    if end is not None and not isinstance(end, str):
        raise Unusable(f'{config}: "eos_token" is {end!r}, which is not text; correct it, or remove the file and give --end-token')
    return end


def _vocabulary(tokenizer: Any) -> int:
    """One more than the largest number of a token: tokens that were added may leave numbers out."""
    return int(max(tokenizer.get_vocab(with_added_tokens=True).values())) + 1


def _text_of(line: str) -> str:
    text = json.loads(line)["text"]
    if not isinstance(text, str):
        raise TypeError
    text.encode("utf-8")  # half of a surrogate pair is a UnicodeEncodeError, which is a ValueError
    return text


def _documents_of(file: pathlib.Path) -> Iterator[str]:
    try:
        if file.suffix != ".jsonl":
            yield file.read_text(encoding="utf-8")
            return
        with open(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield _text_of(line)
                except (ValueError, KeyError, TypeError):
                    raise Unusable(f'{file}: line {number} is not a JSON object whose "text" is a text') from None
    except UnicodeDecodeError as problem:
        raise Unusable(f"{file}: it is not UTF-8 at byte {problem.start}; save it as UTF-8") from None


def documents(paths: Iterable[pathlib.Path]) -> Iterator[str]:
    """The documents of files, and of all files below folders by path, without those that are empty. Names that begin
    with a dot are passed over. Raises Unusable."""
    for path in paths:
        if not path.exists():
            raise Unusable(f"{path}: it does not exist; give text files, .jsonl files or folders of them")
        below = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in below:
            if path.is_dir() and any(part.startswith(".") for part in file.relative_to(path).parts):
                continue
            yield from (text for text in _documents_of(file) if text)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _write_shard(file: pathlib.Path, tokens: array.array[int], form: tuple[int, int, str]) -> None:
    """All of it or nothing: the name appears when the file is whole."""
    magic, version, _ = form
    if sys.byteorder == "big":
        tokens.byteswap()
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with open(temporary, "wb") as out:
        out.write(struct.pack(f"<{_HEADER_INTEGERS}i", magic, version, len(tokens), *[0] * (_HEADER_INTEGERS - 3)))
        tokens.tofile(out)
        out.flush()
        os.fsync(out.fileno())
    temporary.rename(file)


def write_shards(tokenizer: Any, end: str | None, texts: Iterable[str], out: pathlib.Path,
                 shard_tokens: int = _SHARD_TOKENS) -> tuple[int, int]:
    """Writes the tokens of the texts, each with the token `end` behind it, as `tokens_000000.bin` and so on in a folder
    that has no .bin file yet. Returns how many shards and tokens there are. Raises Unusable."""
    end_id = None if end is None else tokenizer.token_to_id(end)
    if end is not None and end_id is None:
        raise Unusable(f"the tokenizer has no token {end!r}; give --end-token one that it has, or --no-end-token")
    out.mkdir(parents=True, exist_ok=True)
    if any(out.glob("*.bin")):
        raise Unusable(f"{out}: it has .bin files, which would be learnt too; give --out another folder")
    form = _SMALL if _vocabulary(tokenizer) <= _SMALL_VOCABULARY else _LARGE
    shard: array.array[int] = array.array(form[2])
    shards = written = 0
    for batch in _batches(texts):
        for encoded in tokenizer.encode_batch(batch, add_special_tokens=False):
            shard.extend(encoded.ids)
            if end_id is not None:
                shard.append(end_id)
        while len(shard) >= shard_tokens:
            _write_shard(out / f"tokens_{shards:06}.bin", shard[:shard_tokens], form)
            del shard[:shard_tokens]
            shards, written = shards + 1, written + shard_tokens
    if shard:
        written += len(shard)
        _write_shard(out / f"tokens_{shards:06}.bin", shard, form)
        shards += 1
    if shards == 0:
        raise Unusable("the texts are empty; give something to learn")
    return shards, written


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m geminid tokens", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    shards = commands.add_parser("shards", help="write files of tokens")
    encode = commands.add_parser("encode", help="print a text's tokens")
    decode = commands.add_parser("decode", help="print the text of tokens")
    for command in (shards, encode, decode):
        command.add_argument("--tokenizer", type=pathlib.Path, required=True, metavar="PATH",
                             help="a tokenizer.json, or a folder that has one")
    shards.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER", help="folder for the .bin files")
    shards.add_argument("--end-token", metavar="TOKEN", help="token after each document; by default the tokenizer's eos_token")
    shards.add_argument("--no-end-token", action="store_true", help="no token after a document")
    shards.add_argument("texts", nargs="+", type=pathlib.Path, metavar="TEXT", help="a file or a folder")
    encode.add_argument("text", metavar="TEXT")
    return parser.parse_args(arguments)


def _shards(parsed: argparse.Namespace, tokenizer: Any, end: str | None) -> None:
    end = None if parsed.no_end_token else parsed.end_token or end
    if end is None and not parsed.no_end_token:
        raise Unusable("the tokenizer does not say which token ends a text; give --end-token or --no-end-token")
    shards, tokens = write_shards(tokenizer, end, documents(parsed.texts), parsed.out)
    print(f"{tokens} tokens in {shards} {'file' if shards == 1 else 'files'}; train with: "
          f"--shards {parsed.out} --vocabulary {_vocabulary(tokenizer)}")


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 2 for what cannot be used."""
    parsed = _arguments(arguments)
    try:
        tokenizer, end = open_tokenizer(parsed.tokenizer)
        if parsed.command == "shards":
            _shards(parsed, tokenizer, end)
        elif parsed.command == "encode":
            print(",".join(map(str, tokenizer.encode(parsed.text, add_special_tokens=False).ids)))
        else:
            numbers = sys.stdin.read().replace(",", " ").split()
            strange = [number for number in numbers if not number.isdecimal() or int(number) >= _TOKENS_MAX]
            if strange:
                raise Unusable(f"standard input has {strange[0]!r}, which is not the number of a token")
            print(tokenizer.decode([int(number) for number in numbers], skip_special_tokens=False))
    except (Unusable, OSError) as problem:
        print(f"geminid tokens: {problem}", file=sys.stderr)
        return _USAGE
    return _OK
