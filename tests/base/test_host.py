"""Host detection, on copies of what Linux says on several machines."""

import os
from pathlib import Path

import pytest

from tilewright.base import host
from tilewright.base.errors import UnsupportedTarget
from tilewright.base.processors import Architecture

V3 = (
    "fpu sse sse2 pni ssse3 cx16 sse4_1 sse4_2 movbe popcnt avx f16c lahf_lm abm fma bmi1 avx2 bmi2 erms adx "
    "clflushopt xsaveopt"
)
V4 = f"{V3} avx512f avx512dq avx512cd avx512bw avx512vl"


def machine(root: Path, cpuinfo: str, caches: tuple[tuple[str, str, str], ...] = ()) -> Path:
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(cpuinfo)
    processor = min(os.sched_getaffinity(0))  # the one that detection asks about
    for index, (level, kind, size) in enumerate(caches):
        entry = root / f"sys/devices/system/cpu/cpu{processor}/cache/index{index}"
        entry.mkdir(parents=True)
        (entry / "level").write_text(f"{level}\n")
        (entry / "type").write_text(f"{kind}\n")
        (entry / "size").write_text(f"{size}\n")
    return root


def x86(vendor: str, family: int, model: int, flags: str) -> str:
    first = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nflags\t\t: {flags}\n"
    return f"{first}\n{first.replace(flags, 'fpu')}"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "cpu"),
    [
        ("AuthenticAMD", 26, 2, f"{V4} avx512_bf16", "znver5"),
        ("AuthenticAMD", 25, 0x11, V4, "znver4"),
        ("AuthenticAMD", 25, 0x21, V3, "znver3"),
        ("AuthenticAMD", 23, 0x31, V3, "znver2"),
        ("AuthenticAMD", 23, 0x01, V3, "znver1"),
        ("AuthenticAMD", 99, 1, V4, "znver5"),
        ("AuthenticAMD", 21, 1, V3, "x86-64-v3"),
        ("GenuineIntel", 6, 0x55, V4, "skylake-avx512"),
        ("GenuineIntel", 6, 0x55, f"{V4} avx512_vnni", "cascadelake"),
        ("GenuineIntel", 6, 0x55, f"{V4} avx512_vnni avx512_bf16", "cooperlake"),
        ("GenuineIntel", 6, 0x8F, V4, "sapphirerapids"),
        ("GenuineIntel", 6, 0x8F, f"{V4} avx512_fp16 amx_tile", "sapphirerapids"),
        ("GenuineIntel", 6, 0xA7, f"{V4} avx512_fp16", "graniterapids"),  # seen under a hypervisor
        ("GenuineIntel", 6, 0xFE, V3, "skylake"),
        ("GenuineIntel", 6, 0xFE, f"{V3} avx_vnni", "alderlake"),
        ("GenuineIntel", 6, 0xFE, "fpu sse sse2 pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm", "x86-64-v2"),
        ("GenuineIntel", 6, 0xA7, V4, "rocketlake"),
        ("GenuineIntel", 6, 0xA7, f"{V4} avx512_bf16 avx512_fp16", "graniterapids"),  # a virtual machine tells so
        ("GenuineIntel", 19, 0x55, V4, "icelake-server"),
        ("GenuineIntel", 19, 1, f"{V4} avx512_fp16", "graniterapids"),
        ("Hygon", 24, 1, V4, "x86-64-v4"),
        ("Zilog", 1, 1, "fpu sse sse2", "x86-64"),
    ],
)
def test_names_of_x86_processors(tmp_path: Path, vendor: str, family: int, model: int, flags: str, cpu: str) -> None:
    assert host.detect(machine(tmp_path, x86(vendor, family, model, flags)), "x86_64").cpu == cpu


def test_x86_features_and_caches(tmp_path: Path) -> None:
    caches = (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "1024K"), ("3", "Unified", "32768K"))
    found = host.detect(machine(tmp_path, x86("AuthenticAMD", 26, 2, f"{V4} avx_vnni"), caches), "x86_64")
    assert found.arch is Architecture.X86_64
    assert {"sse3", "sahf", "lzcnt", "avx512vl", "avxvnni"} <= found.features
    assert "avx512vnni" not in found.features
    assert found.caches == {1: 48 << 10, 2: 1 << 20, 3: 32 << 20}
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.name == "znver5"


@pytest.mark.parametrize("is_granted", [True, False])
def test_a_matrix_unit_is_used_if_the_kernel_lets_the_process(tmp_path: Path, is_granted: bool) -> None:
    text = x86("GenuineIntel", 6, 0x8F, f"{V4} amx_tile amx_int8 amx_bf16")
    found = host.detect(machine(tmp_path, text), "x86_64", may_use_tiles=lambda: is_granted)
    units = {"amx-tile", "amx-int8", "amx-bf16"}
    assert units & found.features == (units if is_granted else set())
    assert "avx512bw" in found.features


def test_the_kernel_is_not_asked_for_what_a_processor_has_not(tmp_path: Path) -> None:
    def asked() -> bool:
        raise AssertionError

    host.detect(machine(tmp_path, x86("AuthenticAMD", 26, 2, V4)), "x86_64", may_use_tiles=asked)


def test_what_the_vendor_calls_a_processor(tmp_path: Path) -> None:
    text = x86("AuthenticAMD", 26, 2, V4).replace("flags", "model name\t: AMD EPYC 9655\nflags", 1)
    assert host.detect(machine(tmp_path, text), "x86_64").name == "AMD EPYC 9655"


def test_a_feature_whose_needs_the_hypervisor_hides_is_not_used(tmp_path: Path) -> None:
    flags = V4.replace(" avx2 ", " ")
    found = host.detect(machine(tmp_path, x86("AuthenticAMD", 26, 2, flags)), "x86_64")
    assert not {name for name in found.features if name.startswith("avx512")}
    assert "fma" in found.features


def test_aarch64(tmp_path: Path) -> None:
    text = (
        "processor\t: 0\nFeatures\t: fp asimd atomics fphp asimdhp asimdrdm lrcpc asimddp sve asimdfhm sve2 i8mm bf16\n"
        "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
    )
    found = host.detect(machine(tmp_path, text), "aarch64")
    assert found.cpu == "neoverse-v2"
    assert found.features == {"lse", "fullfp16", "rdm", "rcpc", "dotprod", "sve", "fp16fml", "sve2", "i8mm", "bf16"}


def test_riscv64(tmp_path: Path) -> None:
    text = "processor\t: 0\nisa\t\t: rv64imafdcv_zicsr_zba_zbb_zvfh_zfhmin\nuarch\t\t: spacemit,x60\n"
    found = host.detect(machine(tmp_path, text), "riscv64")
    assert found.cpu == "spacemit-x60"
    assert found.features == {"m", "a", "f", "d", "c", "v", "zba", "zbb", "zvfh", "zfhmin"}


def test_nothing_known_of_the_machine(tmp_path: Path) -> None:
    found = host.detect(tmp_path, "x86_64")
    assert (found.cpu, found.features, found.caches) == ("x86-64", frozenset(), {})


def test_an_unknown_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTarget, match="this machine is m68k; code can be made for x86_64, aarch64, riscv64"):
        host.detect(tmp_path, "m68k")


@pytest.mark.parametrize(("length", "known"), [(16, set()), (32, {"zvl256b"}), (64, {"zvl256b", "zvl512b"})])
def test_the_length_of_riscv_vectors(tmp_path: Path, length: int, known: set[str]) -> None:
    """Linux lists vectors, but not how long they are."""
    text = "processor\t: 0\nisa\t\t: rv64imafdcv_zicbom_zba_zbb\nuarch\t\t: spacemit,x60\n"
    found = host.detect(machine(tmp_path, text), "riscv64", lambda: length)
    assert {name for name in found.features if name.startswith("zvl")} == known
    assert {"v", "zba", "d"} <= found.features


def test_the_length_is_asked_of_vectors_only(tmp_path: Path) -> None:
    def never() -> int:
        raise AssertionError

    text = "processor\t: 0\nisa\t\t: rv64imafdc_zba_zbb\n"
    assert "v" not in host.detect(machine(tmp_path, text), "riscv64", never).features
