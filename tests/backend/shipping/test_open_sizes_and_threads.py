"""Objects and programs whose sizes are given at run time, and that run on several threads: the bits of the model."""

import ctypes
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from onnx import helper

import tilewright
from tests.backend.shipping.emulator import emulate
from tests.backend.shipping.networks import halved, opened, sample, transformer_block
from tests.backend.shipping.test_objects import GCC, macros, needs_gcc
from tests.frontend.models import model as make_model
from tilewright.backend.shipping.program_text import MODEL, USAGE
from tilewright.base.arrays import Array
from tilewright.model import CompiledModel
from tilewright.runtime.abi import ErrorCode
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.loader import load_image
from tilewright.runtime.objectfile import Place
from tilewright.target.target import Target

THREADS = (1, 2, 3, 8)
OPEN = {0: "batch", 1: "length"}


def several(target: Target) -> Target:
    """``target`` with cores for which any region is worth it."""
    return replace(target, cores=4, machine=replace(target.machine, region_cycles=1))


@cache
def block() -> CompiledModel:
    """A block of a transformer with open dimensions, with parallel regions."""
    return tilewright.compile(opened(transformer_block(), OPEN), target=several(Target.host()), bounds={"batch": 64})


TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, TASK, ctypes.c_void_p, ctypes.c_int64)
_WORD, _LONG = ctypes.c_void_p, ctypes.c_int64


class Host:
    """A caller's threads. ``chunks``: how many it ran."""

    def __init__(self, threads: int) -> None:
        self.chunks = 0
        self._free = SimpleQueue[int]()
        for worker in range(threads):
            self._free.put(worker)
        self._pool = ThreadPoolExecutor(threads)
        self.function = PARALLEL_FOR(self._run)

    def _run(self, host: int | None, task: "ctypes._FuncPointer", argument: int, chunks: int) -> None:
        assert host == 77
        self.chunks += chunks

        def one(chunk: int) -> None:
            worker = self._free.get()
            task(argument, chunk, worker)
            self._free.put(worker)

        list(self._pool.map(one, reversed(range(chunks))))


class Object:
    """An object in this process, by its header."""

    def __init__(self, model: CompiledModel, folder: Path) -> None:
        path, header = model.emit(folder / "net.o", "object")
        self.image, self.sizes = load_image([path.read_bytes()]), macros(header)

    def function(self, name: str, *kinds: type) -> "ctypes._FuncPointer":
        return ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(self.image.symbol(f"net_{name}"))

    def number(self, name: str) -> int:
        return int(self.sizes[f"NET_{name}"])

    def measured(self, open_: Sequence[int], threads: int) -> tuple[int, list[int]]:
        found = (ctypes.c_int64 * self.number("SIZES"))()
        code = self.function("sizes", _WORD, _LONG, _WORD)(_longs(open_), threads, ctypes.addressof(found))
        return code, list(found)

    def run(self, open_: Sequence[int], x: Array, host: Host | None, threads: int) -> tuple[int, Array]:
        code, sizes = self.measured(open_, threads)
        assert code == 0
        at, bytes_at = self.number("OUTPUT_0_SHAPE_AT"), self.number("OUTPUT_0_BYTES_AT")
        assert sizes[self.number("INPUT_0_BYTES_AT")] == x.nbytes
        y = np.zeros(sizes[at:bytes_at], np.float32)
        assert y.nbytes == sizes[bytes_at]
        scratch = np.full(sizes[self.number("SCRATCH_BYTES_AT")] + 64, 0xA5, np.uint8)
        place = -(-scratch.ctypes.data // 64) * 64
        inputs, outputs = (ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)
        given = (_longs(open_), ctypes.addressof(inputs), ctypes.addressof(outputs), place)
        if host is None:
            return self.function("run", *[_WORD] * 4)(*given), y
        run = self.function("run_parallel", *[_WORD] * 4, _LONG, PARALLEL_FOR, _WORD)
        return run(*given, threads, host.function, 77), y


_kept: list[object] = []


def _longs(values: Sequence[int]) -> int:
    array = (ctypes.c_int64 * len(values))(*values)
    _kept.append(array)
    return ctypes.addressof(array)


def test_an_object_for_any_sizes_on_any_threads(tmp_path: Path) -> None:
    symbols = (symbol for one in block().contents().objects for symbol in parse_elf(one).symbols)
    assert any(symbol.name == "tw_parallel_for" and symbol.place is Place.UNDEFINED for symbol in symbols)
    made = Object(block(), tmp_path)
    for shape in ((1, 12, 16), (3, 7, 16), (2, 33, 16)):
        x = sample(shape)
        wanted = block()(x)
        code, y = made.run(shape[:2], x, None, 1)
        assert code == 0
        np.testing.assert_array_equal(y, wanted)
        for threads in THREADS:
            host = Host(threads)
            code, y = made.run(shape[:2], x, host, threads)
            assert code == 0
            np.testing.assert_array_equal(y, wanted)
            assert (host.chunks > 0) is (threads > 1)


def test_sizes_that_an_object_was_not_made_for(tmp_path: Path) -> None:
    made = Object(block(), tmp_path)
    assert [made.sizes[f"NET_OPEN_{i}_NAME"] for i in range(made.number("OPEN"))] == ['"batch"', '"length"']
    assert (made.number("OPEN_0_MOST"), made.sizes["NET_INPUT_0_SHAPE"]) == (64, "{-1, -1, 16}")
    for open_, threads in (((65, 2), 1), ((-1, 2), 1), ((1, 1 << 62), 1), ((1, 2), 0), ((1, 2), 1025)):
        assert made.measured(open_, threads)[0] == ErrorCode.SIZES
    assert made.function("run", *[_WORD] * 4)(_longs((65, 2)), None, None, np.zeros(4096, np.uint8).ctypes.data) == 8


def test_extents_that_follow_from_others(tmp_path: Path) -> None:
    model = tilewright.compile(halved())
    made = Object(model, tmp_path)
    for rows in (2, 5, 8):
        x = sample((rows, 3))
        code, y = made.run((rows,), x, None, 1)
        assert code == 0
        np.testing.assert_array_equal(y, x[0 : rows // 2 * 2 : 2] + x[1::2])


PTHREADS = """
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct job { net_task *task; void *argument; int64_t next, chunks; pthread_mutex_t lock; };
struct worker { struct job *job; int64_t number; };

static void *work(void *given) {
  struct worker *self = given;
  struct job *job = self->job;
  for (;;) {
    pthread_mutex_lock(&job->lock);
    int64_t chunk = job->next++;
    pthread_mutex_unlock(&job->lock);
    if (chunk >= job->chunks) return 0;
    job->task(job->argument, chunk, self->number);
  }
}

static void parallel_for(void *host, net_task *task, void *argument, int64_t chunks) {
  struct job job = {task, argument, 0, chunks, PTHREAD_MUTEX_INITIALIZER};
  struct worker workers[8];
  pthread_t threads[8];
  int64_t count = *(const int64_t *)host;
  for (int64_t i = 0; i < count; i++) {
    workers[i] = (struct worker){&job, i};
    if (i && pthread_create(&threads[i], 0, work, &workers[i])) abort();
  }
  work(&workers[0]);
  for (int64_t i = 1; i < count; i++) pthread_join(threads[i], 0);
}

int main(int count, char **words) {
  if (count != 4) return 90;
  int64_t open[NET_OPEN] = {atoll(words[1]), atoll(words[2])}, threads = atoll(words[3]), sizes[NET_SIZES];
  if (net_sizes(open, threads, sizes)) return 91;
  size_t taken = sizes[NET_INPUT_0_BYTES_AT], given = sizes[NET_OUTPUT_0_BYTES_AT];
  size_t scratch = (sizes[NET_SCRATCH_BYTES_AT] + NET_SCRATCH_ALIGNMENT - 1) / NET_SCRATCH_ALIGNMENT;
  const void *inputs[NET_INPUTS] = {malloc(taken)};
  void *outputs[NET_OUTPUTS] = {malloc(given)};
  if (fread((void *)inputs[0], 1, taken, stdin) != taken) return 92;
  void *memory = aligned_alloc(NET_SCRATCH_ALIGNMENT, scratch * NET_SCRATCH_ALIGNMENT);
  int code = net_run_parallel(open, inputs, outputs, memory, threads, parallel_for, &threads);
  fwrite(outputs[0], 1, given, stdout);
  return code;
}
"""


@needs_gcc
def test_a_program_in_c_with_posix_threads(tmp_path: Path) -> None:
    path, _ = block().emit(tmp_path / "net.o", "object")
    (tmp_path / "main.c").write_text(PTHREADS)
    strict = ("-Wall", "-Wextra", "-Werror", "-O1", "-pthread")
    command = [str(GCC), *strict, str(tmp_path / "main.c"), str(path), "-lm", "-o", str(tmp_path / "main")]
    subprocess.run(command, check=True, timeout=120)
    x = sample((3, 9, 16))
    for threads in THREADS:
        words = ["3", "9", str(threads)]
        found = subprocess.run([tmp_path / "main", *words], input=x.tobytes(), capture_output=True, timeout=60)
        assert (found.returncode, found.stdout) == (0, block()(x).tobytes())


def test_a_program_for_any_sizes_on_any_threads(tmp_path: Path) -> None:
    (path,) = block().emit(tmp_path / "net")
    for shape in ((1, 12, 16), (3, 7, 16)):
        x = sample(shape)
        wanted = block()(x).tobytes()
        sizes = ["--sizes", f"{shape[0]},{shape[1]}"]
        for options in (sizes, *([*sizes, "--threads", str(threads)] for threads in THREADS)):
            done = subprocess.run([path, *options], input=x.tobytes() * 20, capture_output=True, timeout=60)
            assert (done.returncode, done.stderr) == (0, b"")
            assert done.stdout == wanted * 20
    x.tofile(tmp_path / "x.bin")
    once = subprocess.run([path, "--threads", "2", *sizes, tmp_path / "x.bin"], capture_output=True, timeout=60)
    assert once.stdout == wanted


def test_threads_of_a_program_end_with_it(tmp_path: Path) -> None:
    """Also when they are busy: standard input that ends early ends all."""
    (path,) = block().emit(tmp_path / "net")
    options = ["--threads", "8", "--sizes", "1,12"]
    with subprocess.Popen([path, *options], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
        assert running.stdin is not None
        tasks = Path(f"/proc/{running.pid}/task")
        running.stdin.write(sample((1, 12, 16)).tobytes())
        running.stdin.flush()
        for _ in count():
            if len(list(tasks.iterdir())) == 8:
                break
        running.stdin.close()
        assert running.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "give --sizes"),
        (("--sizes", "65,3"), "give --sizes"),
        (("--sizes", "1"), "usage: PROGRAM [--threads N] --sizes batch,length [FILE ...]"),
        (("--sizes", "1,2,3"), "usage"),
        (("--sizes", "1,"), "usage"),
        (("--sizes", "1,x"), "usage"),
        (("--sizes", "1,1234567890123456789"), "usage"),
        (("--sizes",), "usage"),
        (("--sizes", "1,2", "--threads", "1025"), "at most 1024 threads"),
        (("--sizes", "1,2", "a", "b"), "1 files"),
        (("--interface", "x"), "usage"),
    ],
)
def test_arguments_that_are_wrong(options: tuple[str, ...], text: str, tmp_path: Path) -> None:
    (path,) = block().emit(tmp_path / "net")
    found = subprocess.run([path, *options], input=b"", capture_output=True, timeout=60)
    assert (found.returncode, found.stdout) == (USAGE, b"")
    assert text in found.stderr.decode()


def test_the_interface_of_a_program_for_any_sizes(tmp_path: Path) -> None:
    (path,) = block().emit(tmp_path / "net")
    listed = subprocess.run([path, "--interface"], capture_output=True, text=True, timeout=60).stdout
    assert listed.splitlines() == [
        "input float32 (batch)x(length)x16 - x",
        "output float32 (batch)x(length)x16 - y",
        "size 0 64 batch",
        "size 0 - length",
    ]
    sized = subprocess.run([path, "--sizes", "2,30", "--interface"], capture_output=True, text=True, timeout=60).stdout
    assert sized == "input float32 2x30x16 3840 x\noutput float32 2x30x16 3840 y\n"
    assert subprocess.run([path, "--sizes", "65,1", "--interface"], capture_output=True, timeout=60).returncode == USAGE


def test_sizes_for_which_there_is_no_memory(tmp_path: Path) -> None:
    (path,) = block().emit(tmp_path / "net")
    found = subprocess.run([path, "--sizes", f"1,{1 << 50}"], input=b"", capture_output=True, timeout=60)
    assert found.returncode == 5
    assert "not enough memory" in found.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["aarch64,cores=4", "riscv64,cores=4"])
def test_programs_for_other_processors(target: str, tmp_path: Path) -> None:
    """The emulator has no threads: the program goes on with one."""
    made = tilewright.compile(opened(transformer_block(), OPEN), target=several(Target.parse(target)))
    (path,) = made.emit(tmp_path / "net")
    x = sample((2, 5, 16))
    for options in ((), ("--threads", "3")):
        found = emulate(path.read_bytes(), x.tobytes(), "--sizes", "2,5", *options)
        assert (found.code, found.errors) == (0, b"")
        np.testing.assert_allclose(np.frombuffer(found.out, np.float32).reshape(x.shape), block()(x), rtol=0, atol=1e-5)
    assert emulate(path.read_bytes(), b"", "--sizes", "2").code == USAGE


def test_an_error_on_a_thread_is_an_exit_code(tmp_path: Path) -> None:
    table = {"table": np.arange(4096, dtype=np.float32).reshape(64, 64)}
    network = make_model(
        [helper.make_node("Gather", ["table", "i"], ["y"])], {"i": np.zeros(512, np.int64)}, ["y"], table
    )
    (path,) = tilewright.compile(network, target=several(Target.host())).emit(tmp_path / "net")
    given = np.zeros(512, np.int64)
    given[500] = 64
    found = subprocess.run([path, "--threads", "4"], input=given.tobytes(), capture_output=True, timeout=60)
    assert (found.returncode, found.stdout) == (MODEL + ErrorCode.INDEX_FROM_END, b"")


@pytest.mark.slow
@pytest.mark.skipif(not Target.host().has("amx-bf16"), reason="this machine has no matrix unit")
def test_the_matrix_unit_on_threads_of_a_program(tmp_path: Path) -> None:
    """The permission that one thread asks for holds for all."""
    random = np.random.default_rng(4)
    x, w = (random.normal(size=size).astype(np.float32) for size in ((256, 512), (512, 512)))
    network = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w})
    made = tilewright.compile(network, target=several(Target.host()), precision="bf16")
    (path,) = made.emit(tmp_path / "net")
    for threads in THREADS:
        done = subprocess.run([path, "--threads", str(threads)], input=x.tobytes(), capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, made(x).tobytes())
