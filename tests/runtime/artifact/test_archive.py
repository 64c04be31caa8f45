"""The zip: Python's zipfile reads what is written; nothing else than what is written is read."""

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import CorruptArtifact
from tilewright.runtime.artifact import archive

MEMBERS = {"manifest.json": b"{}", "objects/0000.o": b"\x7fELF" + bytes(1000), "empty": b"", "w": b"numbers" * 99}


def packed(members: dict[str, bytes]) -> bytes:
    return b"".join(archive.pack([(name, [data]) for name, data in members.items()]))


def unpacked(data: bytes) -> dict[str, bytes]:
    return {name: bytes(member.data) for name, member in archive.unpack(memoryview(data)).items()}


def test_zipfile_reads_it() -> None:
    with zipfile.ZipFile(io.BytesIO(packed(MEMBERS))) as opened:
        assert opened.testzip() is None
        assert {name: opened.read(name) for name in opened.namelist()} == MEMBERS
        for info in opened.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == 0o100644


names = st.from_regex(r"[a-z0-9_]{1,9}(/[a-z0-9_]{1,9})?", fullmatch=True)


@given(st.dictionaries(names, st.binary(max_size=200), min_size=1, max_size=5))
def test_there_and_back(members: dict[str, bytes]) -> None:
    data = packed(members)
    found = archive.unpack(memoryview(data))
    assert {name: bytes(member.data) for name, member in found.items()} == members
    assert list(found) == list(members)
    assert all(member.is_intact() for member in found.values())


def test_data_are_aligned_and_in_place() -> None:
    data = packed(MEMBERS)
    for name, content in MEMBERS.items():
        if content:
            assert data.index(content) % archive.ALIGNMENT == 0, name


def test_parts_of_a_member_are_joined() -> None:
    joined = b"".join(archive.pack([("a", [b"one", memoryview(b"two")])]))
    assert joined == packed({"a": b"onetwo"})


def test_sizes_and_places_have_64_bits() -> None:
    """The records of a member of 5 GiB, without writing one."""
    big = archive._Entry("weights", 7, 5 << 30, 6 << 30)
    start = 11 << 30
    tail = archive._tail([big], start)
    assert archive._entry(memoryview(tail), 0) == (big, len(big.central()))
    with zipfile.ZipFile(_Sparse(start, tail)) as opened:
        (info,) = opened.infolist()
    assert (info.file_size, info.header_offset) == (big.size, big.offset)


class _Sparse(io.RawIOBase):
    """A file of ``hole`` zeros and then ``tail``."""

    def __init__(self, hole: int, tail: bytes) -> None:
        self._hole, self._tail, self._at = hole, tail, 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._hole + len(self._tail))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        start = self._at - self._hole
        found = self._tail[start : start + size if size >= 0 else None]
        self._at += len(found)
        return found


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../etc/passwd", "no place inside"),
        ("a/../../b", "no place inside"),
        ("/etc/passwd", "no place inside"),
        ("a\\b", "no place inside"),
        ("caf\u00e9", "no place inside"),
    ],
)
def test_names_that_leave_the_archive(name: str, reason: str) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as opened:
        opened.writestr(name, b"x")
    with pytest.raises(CorruptArtifact, match=reason):
        archive.unpack(memoryview(data.getvalue()))


def test_a_symbolic_link() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as opened:
        info = zipfile.ZipInfo("manifest.json")
        info.create_system, info.external_attr = 3, 0o120777 << 16
        opened.writestr(info, "/etc/passwd")
    with pytest.raises(CorruptArtifact, match=r"'manifest\.json' is a symbolic link"):
        archive.unpack(memoryview(data.getvalue()))


def test_compressed_members_and_bombs() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("weights.safetensors", bytes(10_000_000))
    assert len(data.getvalue()) < 20_000
    with pytest.raises(CorruptArtifact, match=r"'weights.safetensors' is compressed \(method 8\)"):
        archive.unpack(memoryview(data.getvalue()))


def test_a_bomb_of_overlapping_members() -> None:
    """Each of many names gives the same bytes: what is declared is more than what is there."""
    data = packed({"a": bytes(1000)})
    entry = archive._Entry("a", 0, 1000, 0)
    start = len(entry.local()) + 1000
    forged = data[:start] + archive._tail([entry, archive._Entry("b", 0, 1000, 0)], start)
    with pytest.raises(CorruptArtifact, match="header of member 'a' is not as Tilewright"):
        archive.unpack(memoryview(forged))


def test_an_encrypted_member() -> None:
    data = bytearray(packed({"a": b"x"}))
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(CorruptArtifact, match="'a' is encrypted"):
        archive.unpack(memoryview(data))


def test_a_member_twice() -> None:
    data = b"".join(archive.pack([("a", [b"1"]), ("a", [b"2"])]))
    with pytest.raises(CorruptArtifact, match="'a' is there twice"):
        archive.unpack(memoryview(data))


def test_what_other_tools_write_is_refused() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as opened:
        opened.writestr("manifest.json", b"{}")
    with pytest.raises(CorruptArtifact, match="not as Tilewright writes it"):
        archive.unpack(memoryview(data.getvalue()))


@pytest.mark.parametrize("data", [b"PK\3\4", b"\x7fELF" + bytes(100), b"PK\3\4" + bytes(500), b"x"])
def test_no_zip(data: bytes) -> None:
    with pytest.raises(CorruptArtifact, match=r"is no artifact|end is missing"):
        archive.unpack(memoryview(data))


def test_every_byte_counts() -> None:
    data = packed(MEMBERS)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x41
        try:
            found = archive.unpack(memoryview(changed))
        except CorruptArtifact:
            continue
        assert not all(member.is_intact() for member in found.values()), position


def test_truncated_or_continued() -> None:
    data = packed(MEMBERS)
    for length in range(len(data)):
        with pytest.raises(CorruptArtifact):
            archive.unpack(memoryview(data[:length]))
    for more in (b"\0", b"PK\5\6", data):
        with pytest.raises(CorruptArtifact):
            archive.unpack(memoryview(data + more))


@given(st.data())
def test_forged_records_are_refused_by_name(data: st.DataObject) -> None:
    original = packed(MEMBERS)
    changed = bytearray(original)
    start = original.index(b"PK\1\2")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(start, len(original) - 8))
        changed[at : at + 8] = data.draw(st.sampled_from([bytes(8), b"\xff" * 8, b"\0\0\0\0\xff\xff\xff\xff"]))
    if changed != original:
        with pytest.raises(CorruptArtifact):
            archive.unpack(memoryview(changed))
