"""Continues a run with another number of ranks, from the state that the previous ranks left in the daemons' memory.

On each daemon the first rank's process claims the state that the previous ranks left there, in place of those ranks. Each
previous rank finishes its part of the last step and copies its state into the daemon's image. When every image is
complete, the previous ranks are deleted. The new ranks, which may be on other hosts, read their shards from the images. An
image is deleted when every new rank has committed a step. Whenever a process dies, one of the two is complete: the
previous ranks or the images.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import socket as socket_
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch

from geminid._library import LIB
from geminid.engine import BFLOAT16, FLOAT32, VALUE, Engine
from geminid.errors import Aborted, DataLoss, GeminidError, ResourceExhausted, Unavailable
from geminid.session import Ranks, Session, run_ranks
from geminid.torch import elastic
from geminid.torch.holding import Holding
from geminid.torch.image import (BLOCK_BYTES, Contents, ImageMemory, Piece, Writer, contents_in, merged, pieces_of,
                                 read_pieces, run_of_image)
from geminid.torch.parameter import Record
from geminid.torch.readings import bytes_text
from geminid.torch.tensors import address_of

T = TypeVar("T")

_INSTALLED = "/run/geminid/geminid.sock"
_HOLDER_SUFFIX = ".holder"  # the socket of geminid-holder is the daemon's path with this suffix
_PATIENCE_SECONDS = 30.0  # for processes of the previous group to end; torchrun waits as long for them
_CONNECT_SECONDS = 60.0
_MEET_SECONDS = 5.0  # well below the time that ranks wait for each other
_TCP = 2
_STEPS_OF_IMAGE = 2  # when one rank has made two steps, every rank has committed one


@dataclass(frozen=True)
class Script:
    """The training of this process. check: raises Refused for the terms of another script. make_engine: makes the engine for
    a session, ranks and a granularity."""
    records: Sequence[Record]
    state_dtype: str
    check: Callable[[Mapping[str, Any]], None]
    make_engine: Callable[[Session, Ranks, str], Engine]


@dataclass
class _Spot:
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


@dataclass(frozen=True)
class _Run:
    """name: the run's name. is_kept: whether the daemon retains this process's memory after its death."""
    name: str
    is_kept: bool

    def session(self, left: elastic.Left, device_bytes: int) -> Session:
        """Opens the session of a rank of the previous group. Without device memory this session can only end."""
        return Session(device_bytes, place=_Spot(left.rank, left.world, 0, 1), run=self.name, device=left.device,
                       keep_on_death=self.is_kept)

    def image_session(self) -> Session:
        return Session(0, place=_Spot(0, 1, 0, 1), run=run_of_image(self.name), keep_on_death=self.is_kept)


def _answers(path: str) -> bool:
    try:
        with socket_.socket(socket_.AF_UNIX, socket_.SOCK_STREAM) as connection:
            connection.settimeout(_CONNECT_SECONDS)
            connection.connect(path)
        return True
    except OSError:
        return False


def _daemon() -> tuple[str, str] | None:
    """Returns (socket, a text unique to the daemon) of this process's daemon. None: it starts a daemon of its own."""
    path = os.environ.get("GEMINID_SOCKET") or _INSTALLED
    give_up = time.monotonic() + _CONNECT_SECONDS
    while not _answers(path):
        if not os.path.exists(path + _HOLDER_SUFFIX) or time.monotonic() > give_up:
            return None
        time.sleep(0.1)  # the daemon has died, and geminid-holder retains its state for the next one
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    found = os.stat(path)
    return path, f"{boot}/{found.st_dev}/{found.st_ino}"


def _look(run: str) -> dict[str, Any]:
    """Returns the run's state that this process sees on its daemon. The other ranks read it."""
    daemon = _daemon()
    if daemon is None:
        return {"daemon": f"none {secrets.token_hex(8)}", "left": [], "image": False}
    left = [asdict(elastic.Left(has["world_size"], has["rank"], has["step"], has["device"], has["device_bytes"]))
            for has in run_ranks(daemon[0], run)]
    return {"daemon": daemon[1], "left": left, "image": bool(run_ranks(daemon[0], run_of_image(run)))}


def _agree(ranks: Ranks, problem: BaseException | None) -> None:
    """Raises an error on all ranks if one of them has a problem."""
    texts = ranks.gather(b"" if problem is None else f"{type(problem).__name__}: {problem}".encode())
    if problem is not None:
        raise problem
    for rank, text in enumerate(texts):
        if text:
            raise Aborted(f"rank {rank} could not take over what the ranks before left in memory: {text.decode()}")


def _together(ranks: Ranks, work: Callable[[], T]) -> T:
    """Returns this rank's result of `work`. All ranks meet again and again until each is done, so that a busy rank does not
    exceed the others' timeouts. Raises on all ranks if `work` raised on one."""
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(work)
        is_done = False
        while not is_done:
            wait([made], timeout=_MEET_SECONDS)
            is_done = b"0" not in ranks.gather(b"1" if made.done() else b"0")
    _agree(ranks, made.exception())
    return made.result()


def _each(work: Callable[[T], object], items: Iterable[T]) -> None:
    """Runs all at the same time, because they wait for each other. When all have ended, raises the first error."""
    items = list(items)
    if items:
        with ThreadPoolExecutor(len(items)) as pool:
            for made in [pool.submit(work, item) for item in items]:
                made.result()


class _Former:
    """A rank of the previous group. This process takes the place of that rank's next process."""

    def __init__(self, run: _Run, left: elastic.Left) -> None:
        self._run, self._left = run, left
        self.rank = left.rank
        self.terms: dict[str, Any] = {}  # empty: its process died before its first step
        self.engine: Engine | None = None
        self.pieces: list[Piece] = []
        self.address = 0  # the address of its pieces in the image
        self._ranks: Ranks | None = None
        self._session: Session | None = None

    def _name(self) -> str:
        return f"rank {self.rank} of {self._left.world}"

    def claim(self, script: Script) -> None:
        """Claims the rank's memory. Waits until the rank's process has ended."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while self._session is None:
            try:
                self._session = self._run.session(self._left, self._left.device_bytes)
            except Unavailable:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.1)
        self._held = Holding(self._session)
        terms, is_successor = self._held.left(), self._session.describe()["is_successor"]
        if is_successor and terms is None and not self._left.step:
            return
        if not is_successor or terms is None or "bytes of a note" not in terms:
            raise DataLoss(f"what {self._name()} left in memory is gone, or belongs to no run of geminid.torch")
        script.check(terms)
        self.terms = terms
        self._held.make_notes(int(terms["bytes of a note"]))

    def finish(self, script: Script, connect: Callable[[elastic.Left], Ranks]) -> None:
        """Finishes the rank's part of the last step together with the other ranks."""
        assert self._session is not None
        self._ranks = connect(self._left)
        try:
            self.engine = script.make_engine(self._session, self._ranks, str(self.terms["unit"]))
        except BaseException:
            self._ranks.close()  # so that the other ranks do not wait for this one
            raise

    def note(self) -> bytes | None:
        assert self.engine is not None
        return self._held.notes.read(self.engine.committed)

    def copy(self) -> None:
        """Copies the rank's state to the image."""
        assert self.engine is not None
        read_pieces(self.engine, self.pieces, self.address)

    def end(self, leaves: bool) -> None:
        """Ends the rank's session. leaves: the daemon retains its memory for another process."""
        try:
            if self._session is not None and leaves:
                self._session.leave()
        finally:
            for each in (self.engine, self._ranks, self._session):
                if each is not None:
                    each.close()


def _own_address() -> str:
    """Returns the address at which the host of MASTER_ADDR reaches this host."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        family, kind, _, _, address = socket_.getaddrinfo(master, 9, type=socket_.SOCK_DGRAM)[0]
        with socket_.socket(family, kind) as connection:
            connection.connect(address)
            own = str(connection.getsockname()[0])
    except OSError:
        return master
    return master if own.startswith("127.") or own == "::1" else own


def _free_port() -> int:
    with socket_.socket(socket_.AF_INET, socket_.SOCK_STREAM) as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


class Handover:
    """The takeover of one process. world: the number of previous ranks; 0: the run starts anew. why_not: the reason."""

    def __init__(self, ranks: Ranks, memory: ImageMemory | None) -> None:
        self.world, self.step, self.why_not = 0, 0, ""
        self.notes: dict[int, bytes] = {}
        self._ranks, self._memory = ranks, memory
        self._parts: list[tuple[int, Contents]] = []
        self._progress = Contents()
        self._steps = 0
        self._closed = memory is None

    def take_image(self, image: elastic.Image, check: Callable[[Mapping[str, Any]], None]) -> None:
        """Reads the headers of all images. All ranks must call it. If `check` raises for the terms of an image, this
        raises the same, and nothing has changed."""
        mine = self._memory is not None and self._memory.found is not None and (
            self._memory.found.generation == image.generation)
        headers = self._ranks.gather(self._memory.header() if mine and self._memory is not None else b"")
        parts = [(rank, contents_in(header)) for rank, header in enumerate(headers) if header]
        for _, contents in parts:
            check(contents.terms)
        self._parts = parts
        self._progress = merged([contents for _, contents in self._parts])
        self.world, self.step, self.notes = image.world, self._progress.step, self._progress.notes

    def fill(self, engine: Engine) -> None:
        """Fills the engine with its shards of the images and with their step. All ranks must call it."""
        def zeros(_parameter: int, _first: int, address: int, count: int) -> None:
            ctypes.memset(address, 0, 4 * count)

        engine.initialize(zeros)
        nothing = torch.empty(1)
        engine.write_shard(0, VALUE, 0, address_of(nothing), 0)  # after this call no rank has copies on its device
        scratch = torch.empty(BLOCK_BYTES, dtype=torch.uint8)
        for rank, contents in self._parts:
            writer, nbytes = Writer(engine, contents), contents.places()[-1]
            for begin in range(0, nbytes, BLOCK_BYTES):
                size = min(BLOCK_BYTES, nbytes - begin)
                block = scratch[:size]
                if rank == self._ranks.rank and self._memory is not None:
                    block = self._memory.block(begin, size)
                self._ranks.broadcast(address_of(block), size, rank)
                writer.write(begin, block)
        engine.restore(self._progress.step, self._progress.updates, self._progress.tensor_state)

    def stepped(self) -> None:
        """Call it when a new step is committed, not a replayed one."""
        self._steps += 1
        if self._steps >= _STEPS_OF_IMAGE:
            self.close()

    def leave(self) -> None:
        """Lets the daemon retain the images for the next process."""
        if self._memory is not None and not self._closed:
            self._memory.leave()
        self._closed = True

    def close(self) -> None:
        """Frees this process's image, if it has one, and the data that was read from all images."""
        if self._memory is not None and not self._closed:
            self._memory.close()
        self._closed = True
        self.notes, self._parts = {}, []


class _Group:
    """This group of ranks, while it decides what it continues from."""

    def __init__(self, ranks: Ranks, run: _Run) -> None:
        self.ranks, self.run = ranks, run
        mine = _together(ranks, lambda: _look(run.name))
        seen = [json.loads(data) for data in ranks.gather(json.dumps(mine).encode())]
        daemons = list(dict.fromkeys(has["daemon"] for has in seen))
        self.places = [daemons.index(has["daemon"]) for has in seen]
        self.leaders = [self.places.index(number) for number in range(len(daemons))]
        self._left = [tuple(elastic.Left(**left) for left in seen[leader]["left"]) for leader in self.leaders]
        self._has_image = [bool(seen[leader]["image"]) for leader in self.leaders]
        self.daemon = self.places[ranks.rank]
        self.leads = self.leaders[self.daemon] == ranks.rank
        self.memory: ImageMemory | None = None

    def found_nothing(self) -> bool:
        return not any(self._left) and not any(self._has_image)

    def find(self) -> list[elastic.Found]:
        """Returns the state that each daemon has. All ranks must call it."""
        def open_image() -> None:
            if self.leads and self._has_image[self.daemon]:
                self._open_image()

        _together(self.ranks, open_image)
        mine = self.memory.found if self.memory is not None else None
        images = [json.loads(data) for data in self.ranks.gather(json.dumps(mine and asdict(mine)).encode())]
        return [elastic.Found(left, elastic.Image(**{**image, "ranks": tuple(image["ranks"])}) if image else None)
                for left, image in zip(self._left, (images[leader] for leader in self.leaders))]

    def _open_image(self) -> ImageMemory:
        if self.memory is None:
            self.memory = ImageMemory(self.run.image_session)
        return self.memory

    def collect(self, choice: elastic.Choice, script: Script) -> elastic.Image | None:
        """Collects the state of the previous group into images. None: that group has committed nothing. If it fails, all state
        stays where it was. All ranks must call it."""
        formers = [_Former(self.run, left) for left in self._left[self.daemon]
                   if self.leads and left.world == choice.world and choice.owners[left.rank] == self.daemon]
        before, is_done = LIB.failed, False
        try:
            image = self._collect(choice, script, formers)
            is_done = True
            return image
        finally:
            _each(lambda former: former.end(leaves=not is_done), formers)
            if is_done:
                LIB.failed = before

    def _collect(self, choice: elastic.Choice, script: Script, formers: Sequence[_Former]) -> elastic.Image | None:
        _together(self.ranks, lambda: _each(lambda former: former.claim(script), formers))
        if not self._all(bool(former.terms) for former in formers):
            return None
        connect = self._connecting(choice)
        _together(self.ranks, lambda: _each(lambda former: former.finish(script, connect), formers))
        if not self._all(former.engine is not None and former.engine.resumed() is not None for former in formers):
            return None
        generation = int(self.ranks.gather(str(secrets.randbits(48)).encode())[0])
        contents = Contents()
        _together(self.ranks, lambda: self._describe(script, formers, contents))
        steps = self.ranks.gather(str(contents.step).encode())
        image = elastic.Image(generation, choice.world, tuple(sorted(contents.notes)), max(map(int, steps)))
        _together(self.ranks, lambda: self._write(choice, formers, contents))
        _together(self.ranks, lambda: self._complete(formers, image))
        return image

    def _all(self, mine: Iterable[bool]) -> bool:
        """Returns whether the values of all ranks are true."""
        return b"0" not in self.ranks.gather(b"1" if all(mine) else b"0")

    def _connecting(self, choice: elastic.Choice) -> Callable[[elastic.Left], Ranks]:
        """Returns a function that connects the previous group's ranks. Their order is unchanged, and so are all sums."""
        offer = {"address": _own_address(), "port": _free_port()} if self.leads else {}
        offers = [json.loads(data) for data in self.ranks.gather(json.dumps(offer).encode())]
        first = offers[self.leaders[choice.owners[0]]]
        is_one = len(set(choice.owners)) == 1
        job = os.environ.get("GEMINID_JOB_ID") or os.environ.get("TORCHELASTIC_RUN_ID") or ""
        more = {"local_world_size": choice.world} if is_one else {"backend": _TCP, "local_world_size": 0}

        def connect(left: elastic.Left) -> Ranks:
            return Ranks(rank=left.rank, world_size=left.world, local_rank=left.rank if is_one else 0, job=job,
                         master_address=first["address"], master_port=first["port"], name="ranks before",
                         connect_timeout_seconds=_CONNECT_SECONDS, **more)

        return connect

    def _describe(self, script: Script, formers: Sequence[_Former], contents: Contents) -> None:
        state_type = BFLOAT16 if script.state_dtype == "bf16" else FLOAT32
        for former in formers:
            engine, note = former.engine, former.note()
            assert engine is not None
            if note is None:
                raise DataLoss(f"the weights that rank {former.rank} left in memory are of step {engine.committed}, "
                               "and its record of that step is missing. Free them with `geminictl end JOB`")
            contents.notes[former.rank], contents.terms = note, former.terms
            contents.step, contents.updates, contents.tensor_state = engine.progress()
            former.pieces = pieces_of(engine, script.records, state_type)
            contents.pieces += former.pieces

    def _write(self, choice: elastic.Choice, formers: Sequence[_Former], contents: Contents) -> None:
        if not formers:
            return
        places = contents.places()
        try:
            address = self._open_image().make(contents)
        except ResourceExhausted as problem:
            raise ResourceExhausted(
                f"what {choice.world} ranks left in memory is to be shared out to {self.ranks.world_size}, which needs "
                f"{bytes_text(places[-1])} of host memory beside it: {problem}. Start geminid again with more --host-memory, or "
                f"{choice.world} ranks again, or free what is kept by `geminictl end JOB` and begin from a checkpoint") from None
        for former in formers:
            former.address, places = address + places[0], places[len(former.pieces):]
        _each(_Former.copy, formers)

    def _complete(self, formers: Sequence[_Former], image: elastic.Image) -> None:
        if formers and self.memory is not None:
            self.memory.complete(image)

    def end_others(self, choice: elastic.Choice, collected: bool) -> None:
        """Frees the state of ranks that no rank continues from. Live processes keep theirs. All ranks must call it."""
        def end() -> None:
            for left in self._left[self.daemon] if self.leads else ():
                is_claimed = choice.claims and left.world == choice.world and self.places[left.rank] == self.daemon
                is_ended = collected and left.world == choice.world and choice.owners[left.rank] == self.daemon
                if is_claimed or is_ended:
                    continue
                try:
                    self.run.session(left, 0).close()
                except GeminidError as problem:
                    print(f"geminid: {problem}", file=sys.stderr, flush=True)

        _together(self.ranks, end)


def take_over(ranks: Ranks, run: str, is_kept: bool, script: Script) -> Handover | None:
    """Finds what this group of ranks continues from. All ranks must call it, before their sessions exist. None: nothing was
    left, or each rank finds the state of its previous process in its own session.

    Raises Refused if another script left the state, and ResourceExhausted if memory for the images does not suffice."""
    group = _Group(ranks, _Run(run, is_kept))
    if group.found_nothing():
        return None
    try:
        return _take_over(group, script)
    except BaseException:
        if group.memory is not None:
            group.memory.leave()
        raise


def _take_over(group: _Group, script: Script) -> Handover | None:
    found = group.find()
    choice = elastic.choose(group.places, found)
    image = None
    collected = False
    if choice.world and not choice.claims:
        image = group.collect(choice, script)
        collected = True
    image = image or elastic.whole_image(found)
    made = Handover(group.ranks, group.memory)
    if image is not None:
        made.take_image(image, script.check)
    group.end_others(choice, collected)
    if image is not None:
        return made
    made.close()
    made.why_not = choice.missing
    return None if choice.claims else made
