"""Code for a processor has no instruction beyond the features that the tables list, which loading checks.

LLVM knows more features of most processors. So each gets a module that tempts it to use them, and what comes out is
compared with the manuals: which feature a mnemonic or a register belongs to.
"""

import re
from collections.abc import Iterable

import llvmlite.binding as llvm
import pytest

import tilewright
from tests.backend.shipping.networks import lenet, transformer_block
from tilewright.backend.cpu import image
from tilewright.backend.cpu.llvm import compile_assembly
from tilewright.base.processors import BASELINE, FEATURES, PROCESSORS
from tilewright.target.target import Architecture, Target

NEVER = "unlisted"

# A pattern of an instruction, and the features of which one is needed. The first that matches counts.
OWNERS: dict[Architecture, tuple[tuple[str, str], ...]] = {
    Architecture.X86_64: (
        (r"prefetchw|prefetchwt1|movnts[sd]|extrq|insertq|t1mskc|blcfill|adcx|sha\w+|crc32|rdpid|movdir\w+", NEVER),
        (r"vpdpbusd.*%zmm|vpdpwssd.*%zmm", "avx512vnni"),
        (r"vpdpbusd|vpdpwssd", "avx512vnni avxvnni"),
        (r"vdpbf16ps|vcvtne(2)?ps2bf16", "avx512bf16 avxneconvert"),
        (r"vgf2p8|gf2p8", "gfni"),
        (r"v\w+.*%[xyz]mm\d+.*\bph\b|v(add|mul|fmadd\d+)[ps]h", "avx512fp16"),
        (r"vpopcnt[dq]", "avx512vpopcntdq"),
        (r"vpopcnt[bw]", "avx512bitalg"),
        (r"vpsh[lr]dv?[wdq]|vpcompress[bw]|vpexpand[bw]", "avx512vbmi2"),
        (r"vpermb|vpermi2b|vpermt2b|vpmultishiftqb", "avx512vbmi"),
        (r"vpconflict|vplzcnt", "avx512cd"),
        (r".*%zmm|.*%k[0-7]|.*%[xy]mm(1[6-9]|2\d|3[01])|vpternlog|vpro[lr]", "avx512f"),
        (r"vfn?m(add|sub)", "fma"),
        (r"vcvtph2ps|vcvtps2ph", "f16c"),
        (r"vp(?!erm2f128|ermilp|test)\w+.*%ymm|vpbroadcast|vps[rl]\wv|vgather|vpgather", "avx2"),
        (r"v(?!err|erw)\w+", "avx"),
        (r"popcnt", "popcnt"),
        (r"lzcnt", "lzcnt"),
        (r"tzcnt|andn[lq]|bls\w+|bextr", "bmi"),
        (r"shlx|shrx|sarx|rorx|mulx|pdep|pext|bzhi", "bmi2"),
        (r"movbe", "movbe"),
        (r"cmpxchg16b", "cx16"),
        (r"pcmpgtq", "sse4.2"),
        (r"pmulld|p(min|max)(s[bd]|u[wd])|round[ps][sd]|pmov[sz]x\w+|blendv\w+|p?blend\w+|pinsr[bdq]|ptest", "sse4.1"),
        (r"pshufb|pabs[bwd]|palignr|phadd\w+|pmaddubsw|pmulhrsw", "ssse3"),
        (r"haddps|movddup|movs[hl]dup|addsubp[sd]", "sse3"),
    ),
    Architecture.AARCH64: (
        (r"(eor3|bcax|xar)\s+z", "sve2"),
        (r"eor3|bcax|rax1|xar|ldapur|crc32|fjcvtzs|f?cmla|fcadd|frint(32|64)|aes\w+|sha\w+|pmull|setf\d+|cfinv", NEVER),
        (r"ldaprb?h?", "rcpc"),
        (r"(cas|swp|ldadd|ldset|ldclr|ldeor|ldsmax|ldsmin|ldumax|ldumin|stadd)[abhl]*\b", "lse"),
        (r"sqrdml[as]h", "rdm"),
        (r"[su]dot", "dotprod"),
        (r"fmlal|fmlsl", "fp16fml"),
        (r"bfdot|bfmmla|bfcvt|bfml", "bf16"),
        (r"usdot|sudot|[su]mmla|usmmla", "i8mm"),
        (r".*\b[zp]\d+\b", "sve"),
        (r"f(add|sub|mul|mla|mls|div|max|min|sqrt|neg|abs|madd)\w*\s+(v\d+\.[48]h|h\d+)", "fullfp16"),
    ),
    Architecture.RISCV64: (
        (r"v(wsll|andn|brev|rev8|clz|ctz|cpop|rol|ror|clmul|aes|sha|sm)\w*(\.|\b)", NEVER),
        (r"prefetch\.|czero|cbo\.|ntl\.|c\.ntl|f(min|max)m\.|fli\.|fround|amocas|xor3|th\.", NEVER),
        (r"f(add|sub|mul|div|sqrt|madd|min|max|eq|lt|le)\.h", "zfh"),
        (r"fl?s?h\s|fcvt\.(s|d)\.h|fcvt\.h\.(s|d)|fmv\.[xh]\.[xh]", "zfhmin"),
        (r"v\w+", "v"),
        (r"sh[123]add|add\.uw|slli\.uw", "zba"),
        (r"andn|orn|xnor|clz|ctz|cpop|maxu?\s|minu?\s|sext\.[bh]|zext\.h|ro[lr]|orc\.b|rev8", "zbb"),
        (r"b(set|clr|inv|ext)i?\s", "zbs"),
        (r"mulh?s?u?w?\s|divu?w?\s|remu?w?\s", "m"),
        (r"amo\w+|lr\.|sc\.", "a"),
        (r"f\w+\.d\b|fld|fsd", "d"),
        (r"f(?!ence)\w+", "f"),
    ),
}

LLVM_IMPLIES = {
    "i": "",
    "m": "zmmul",
    "a": "zaamo zalrsc",
    "f": "zicsr",
    "c": "zca zcd",
    "zba": "",
    "zbb": "",
    "zbs": "",
    "v": "zve32f zve32x zve64d zve64f zve64x zvl32b zvl64b zvl128b",
    "zvfh": "zvfhmin zve32f",
}
"""What the RISC-V manual says of the listed features: they have these as parts."""

TEMPTING = """
define void @tempt(ptr %a, ptr %b, ptr %c, i64 %n) {
  %x = load <32 x float>, ptr %a
  %y = load <32 x float>, ptr %b
  %z = load <32 x float>, ptr %c
  %f = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %x, <32 x float> %y, <32 x float> %z)
  %r = call <32 x float> @llvm.floor.v32f32(<32 x float> %f)
  %h = fptrunc <32 x float> %r to <32 x half>
  store <32 x half> %h, ptr %b
  %w = fpext <32 x half> %h to <32 x float>
  store <32 x float> %w, ptr %a
  ret void
}

define void @whole(ptr %a, ptr %b, ptr %c) {
  %x = load <16 x i32>, ptr %a
  %y = load <16 x i32>, ptr %b
  %z = load <16 x i32>, ptr %c
  %xy = xor <16 x i32> %x, %y
  %xyz = xor <16 x i32> %xy, %z
  %not = xor <16 x i32> %y, splat (i32 -1)
  %and = and <16 x i32> %not, %z
  %bcax = xor <16 x i32> %and, %x
  %ones = call <16 x i32> @llvm.ctpop.v16i32(<16 x i32> %xyz)
  %zeros = call <16 x i32> @llvm.ctlz.v16i32(<16 x i32> %bcax, i1 false)
  %turned = call <16 x i32> @llvm.fshl.v16i32(<16 x i32> %ones, <16 x i32> %ones, <16 x i32> %zeros)
  %most = call <16 x i32> @llvm.smax.v16i32(<16 x i32> %turned, <16 x i32> %x)
  %reversed = call <16 x i32> @llvm.bitreverse.v16i32(<16 x i32> %most)
  store <16 x i32> %reversed, ptr %a
  %short = load <16 x i16>, ptr %b
  %wide = zext <16 x i16> %short to <16 x i32>
  %shifted = shl <16 x i32> %wide, splat (i32 3)
  store <16 x i32> %shifted, ptr %c
  ret void
}

define i64 @scalars(ptr %a, i64 %x, i64 %y) {
  %at = getelementptr i8, ptr %a, i64 9
  %near = getelementptr i64, ptr %a, i64 3
  %loaded = load atomic i64, ptr %near acquire, align 8
  %old = atomicrmw add ptr %a, i64 %x seq_cst
  %pair = cmpxchg ptr %a, i64 %x, i64 %y seq_cst seq_cst
  call void @llvm.prefetch.p0(ptr %at, i32 1, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %at, i32 0, i32 3, i32 1)
  %some = icmp ne i64 %x, 0
  %chosen = select i1 %some, i64 %y, i64 0
  %bits = call i64 @llvm.ctpop.i64(i64 %chosen)
  %first = call i64 @llvm.cttz.i64(i64 %x, i1 false)
  %last = call i64 @llvm.ctlz.i64(i64 %y, i1 false)
  %swapped = call i64 @llvm.bswap.i64(i64 %loaded)
  %most = call i64 @llvm.smax.i64(i64 %bits, i64 %first)
  %sum = add i64 %most, %last
  %amount = and i64 %x, 63
  %shift = shl i64 %sum, %amount
  %all = xor i64 %shift, %swapped
  %product = mul i64 %all, %old
  ret i64 %product
}

define void @past(ptr %p, float %x) {
  store float %x, ptr %p, align 4, !nontemporal !0
  ret void
}

!0 = !{i32 1}
"""

DECLARED = "\n".join(
    f"declare {kind} @llvm.{name}({arguments})"
    for kind, name, arguments in (
        ("<32 x float>", "fmuladd.v32f32", "<32 x float>, <32 x float>, <32 x float>"),
        ("<32 x float>", "floor.v32f32", "<32 x float>"),
        ("<16 x i32>", "ctpop.v16i32", "<16 x i32>"),
        ("<16 x i32>", "ctlz.v16i32", "<16 x i32>, i1"),
        ("<16 x i32>", "fshl.v16i32", "<16 x i32>, <16 x i32>, <16 x i32>"),
        ("<16 x i32>", "smax.v16i32", "<16 x i32>, <16 x i32>"),
        ("<16 x i32>", "bitreverse.v16i32", "<16 x i32>"),
        ("void", "prefetch.p0", "ptr, i32, i32, i32"),
        ("i64", "ctpop.i64", "i64"),
        ("i64", "cttz.i64", "i64, i1"),
        ("i64", "ctlz.i64", "i64, i1"),
        ("i64", "bswap.i64", "i64"),
        ("i64", "smax.i64", "i64, i64"),
    )
)
MACHINES = [arch for arch in Architecture if arch is not Architecture.WASM32]
_TEMPTED = (
    "znver2",
    "znver5",
    "sapphirerapids",
    "apple-m3",
    "neoverse-v1",
    "neoverse-v2",
    "sifive-p670",
    "spacemit-x60",
)
FEW = [
    pytest.param(arch, cpu, marks=() if cpu in _TEMPTED else pytest.mark.slow, id=cpu)
    for arch in MACHINES
    for cpu in PROCESSORS[arch]
]
"""Processors: the ones with most features are fast tests."""


def beyond(assembly: str, arch: Architecture, features: Iterable[str]) -> set[str]:
    """The instructions that none of ``features`` has."""
    found: set[str] = set()
    for line in assembly.splitlines():
        text = line.strip().split("#")[0]
        if not line.startswith("\t") or text.startswith((".", "lock")) or not text:
            continue
        owner = next((names for pattern, names in OWNERS[arch] if re.match(pattern, text)), None)
        if owner is not None and not set(owner.split()) & set(features):
            found.add(text)
    return found


def llvms_own(arch: Architecture, cpu: str) -> str:
    """The module as LLVM compiles it for a processor by its own list."""
    triple = f"{arch.value}-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=2, reloc="pic", codemodel="small")
    head = f'target triple = "{triple}"\ntarget datalayout = "{machine.target_data}"\n'
    return machine.emit_assembly(llvm.parse_assembly(head + TEMPTING + DECLARED))


@pytest.mark.parametrize(("arch", "cpu"), FEW)
def test_a_processor_gets_listed_instructions_only(arch: Architecture, cpu: str) -> None:
    target = Target.of(arch, cpu)
    assert not beyond(compile_assembly(TEMPTING + DECLARED, target), arch, target.features)


@pytest.mark.slow
@pytest.mark.parametrize("arch", MACHINES)
def test_each_feature_alone(arch: Architecture) -> None:
    for name in FEATURES[arch]:
        target = Target.of(arch, BASELINE[arch], (name,))
        assert not beyond(compile_assembly(TEMPTING + DECLARED, target), arch, target.features), name


@pytest.mark.parametrize(
    ("arch", "cpu", "instruction"),
    [
        (Architecture.X86_64, "znver4", "prefetchw"),
        (Architecture.X86_64, "znver2", "movntss"),
        (Architecture.AARCH64, "apple-m1", "eor3"),
        (Architecture.AARCH64, "apple-m1", "bcax"),
        (Architecture.AARCH64, "neoverse-v1", "ldapur"),
        (Architecture.RISCV64, "sifive-p670", "vwsll"),
        (Architecture.RISCV64, "sifive-p670", "prefetch."),
    ],
)
def test_the_module_tempts(arch: Architecture, cpu: str, instruction: str) -> None:
    Target.of(arch, cpu)
    compile_assembly("", Target.of(arch, cpu))  # LLVM is set up
    found = beyond(llvms_own(arch, cpu), arch, Target.of(arch, cpu).features)
    assert any(text.startswith(instruction) for text in found)


@pytest.mark.parametrize("cpu", ["sifive-p670", "sifive-x280", "spacemit-x60"])
def test_riscv_objects_say_what_they_need(cpu: str) -> None:
    """LLVM lists the extensions in the object; what the tables list, these have by LLVM's own list, too."""
    target = Target.of(Architecture.RISCV64, cpu)
    named = extensions(compile_assembly(TEMPTING + DECLARED, target))
    parts = {part for name in (*target.features, "i") for part in LLVM_IMPLIES.get(name, "").split()}
    bits = {"b"} if {"zba", "zbb", "zbs"} <= named else set[str]()  # their name together
    assert named - parts - bits - {"i"} == set(target.features)
    assert set(target.features) <= extensions(llvms_own(Architecture.RISCV64, cpu))


def extensions(assembly: str) -> set[str]:
    (text,) = re.findall(r'\.attribute\s+5, "rv64(\w+)"', assembly)
    return {re.sub(r"\d+p\d+$", "", word) for word in text.split("_")}


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "cpu"), [param.values for param in FEW])
def test_kernels_of_networks(arch: Architecture, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, texts = Target.of(arch, cpu), list[str]()
    compiled = image.compile_object
    monkeypatch.setattr(image, "compile_object", lambda text, *rest: texts.append(text) or compiled(text, *rest))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")
    for network in (lenet, transformer_block):
        tilewright.compile(network(), target=target)
    assert texts
    for text in texts:
        assert not beyond(compile_assembly(text, target), arch, target.features)
