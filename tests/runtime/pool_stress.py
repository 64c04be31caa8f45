"""Run by test_pool in a process of its own, which it may kill: many callers, few processors, forks in between.

    python pool_stress.py FOLDER_OF_OBJECTS CALLERS THREADS SPINS FORKS SECONDS

Prints the number of regions. Exits with 1 if a chunk was lost, ran twice, or shared a worker number. Imports no
compiler.
"""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.loader import LoadedImage, load_image
from tilewright.runtime.memory import address_of, aligned
from tilewright.runtime.pool import Pool

REGIONS = 300
STATE_WORDS = 256 + 16 * 64


def torture(image: LoadedImage, pool: Pool, threads: int, seed: int) -> int:
    """The number of errors in some hundred regions."""
    state, context = (aligned(8 * words).view(np.int64) for words in (STATE_WORDS, abi.CONTEXT_BYTES // 8))
    state.fill(0)
    context.fill(0)
    context[0], context[1] = pool.address, pool.ensure(threads, image)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return call(image.symbol("torture"))(address_of(context), address_of(state), REGIONS, seed)


def in_child(image: LoadedImage, pool: Pool, threads: int) -> bool:
    """Fork; the child runs regions on its own workers. Whether it was right."""
    child = os.fork()
    if child == 0:
        errors = sum(torture(image, pool, threads, seed) for seed in range(5))
        os._exit(0 if errors == 0 and pool.ensure(threads, image) == threads else 1)
    return os.waitpid(child, 0)[1] == 0


def main(folder: str, callers: int, threads: int, spins: int, forks: int, seconds: float) -> None:
    image = load_image([path.read_bytes() for path in sorted(Path(folder).glob("*.o"))])
    pool = Pool(spins)
    os.register_at_fork(after_in_child=pool.after_fork)
    end = time.monotonic() + seconds
    errors: list[int] = []
    rounds: list[int] = []

    def caller(number: int) -> None:
        seed = number * 1_000_003
        while time.monotonic() < end:
            errors.append(torture(image, pool, threads, seed))
            rounds.append(1)
            seed += 1
            if number == 0 and seed % 50 == 0:
                time.sleep(0.003)  # long enough for workers to fall asleep

    running = [threading.Thread(target=caller, args=(i,)) for i in range(callers)]
    for thread in running:
        thread.start()
    children = [in_child(image, pool, threads) for _ in range(forks)]
    for thread in running:
        thread.join()
    pool.stop()
    print(len(rounds) * REGIONS)
    sys.exit(0 if sum(errors) == 0 and all(children) else 1)


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:6]), float(sys.argv[6]))
