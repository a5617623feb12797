"""Wrong and hostile files are refused by name, before anything of the size that they claim is allocated."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from crafted import ARRAY, BOOL, F32, STRING, U8, U32, Tensor, array, file, info, key, text, u32

from specserve.api import ModelError
from specserve_gguf.header import read_header

HUGE = 1 << 62
MUCH = 4 << 20
"""Bytes; the files have some 2,000."""
FINE = [info(Tensor())]
WRONG = {
    "empty": (b"", "fewer than 24 bytes"),
    "too short": (b"GGUF\x03\0\0\0", "fewer than 24 bytes"),
    "another magic": (file(FINE, start=b"GGML\x03\0\0\0"), "begins with b'GGML'"),
    "version 1": (file(start=b"GGUF\x01\0\0\0"), "version 1 of GGUF; allowed: 2 and 3"),
    "version 4": (file(start=b"GGUF\x04\0\0\0"), "version 4 of GGUF"),
    "big-endian": (file(start=b"GGUF\0\0\0\x03"), "big-endian"),
    "2^64 keys": (file(counts=(0, (1 << 64) - 1)), "says that it has 18446744073709551615 keys"),
    "more keys than bytes": (file(counts=(0, 60_000)), "metadata of 60000 keys takes 840000 bytes"),
    "one key too many": (file([u32(b"a", 1)], counts=(0, 2), data=0), "a key has no name"),
    "2^64 tensors": (file(counts=((1 << 64) - 1, 0)), "says that it has 18446744073709551615 tensors"),
    "more tensors than bytes": (file(counts=(60_000, 0)), "a list of 60000 tensors"),
    "a key of 2^62 bytes": (file([struct.pack("<Q", HUGE)]), "the name of a key takes 4611686018427387904 bytes"),
    "a value of 2^62 bytes": (file([key(b"a", STRING, struct.pack("<Q", HUGE))]), "key a takes"),
    "a value of 2^64 - 1 bytes": (file([key(b"a", STRING, b"\xff" * 8)]), "key a takes 18446744073709551615 bytes"),
    "an array of 2^62 bytes": (file([array(b"a", U8, HUGE, b"")]), "array a takes"),
    "an array of 2^61 numbers": (file([array(b"a", U32, HUGE >> 1, b"")]), "array a takes 9223372036854775808 bytes"),
    "an array of 2^62 strings": (file([array(b"a", STRING, HUGE, b"")]), "array a has 4611686018427387904 strings"),
    "more strings than bytes": (file([array(b"a", STRING, 1 << 20, b"")]), "array a of 1048576 strings takes"),
    "a string beyond the end": (file([array(b"a", STRING, 1, struct.pack("<Q", 9000))]), "a string in array a takes"),
    "an array of arrays": (file([array(b"a", ARRAY, 1, struct.pack("<IQ", U8, 0))]), "array a has arrays"),
    "an array of an unknown type": (file([array(b"a", 13, 1, b"\0" * 8)]), "array a has values of type 13"),
    "a value of an unknown type": (file([key(b"a", 99, b"\0" * 8)]), "key a has type 99"),
    "a truth value of 2": (file([key(b"a", BOOL, b"\x02")]), "key a must be 0 or 1"),
    "truth values of 2": (file([array(b"a", BOOL, 2, b"\x01\x02")]), "key a must be 0 or 1"),
    "a key that is not UTF-8": (file([u32(b"\xff\xfe", 1)]), "the name of a key is not UTF-8"),
    "a value that is not UTF-8": (file([key(b"a", STRING, text(b"\xc3\x28"))]), "key a is not UTF-8"),
    "a token that is not UTF-8": (file([array(b"a", STRING, 1, text(b"\x80"))]), "a string in array a is not UTF-8"),
    "a tensor's name that is not UTF-8": (file([], [info(Tensor(b"\xff"))]), "the name of a tensor is not UTF-8"),
    "a key twice": (file([u32(b"a", 1), u32(b"a", 2)]), "key 'a' is there twice"),
    "a tensor twice": (file([], [*FINE, info(Tensor(offset=1024))], data=4096), "is there twice"),
    "alignment 0": (file([u32(b"general.alignment", 0)], FINE), "general.alignment must be a power of two"),
    "alignment 24": (file([u32(b"general.alignment", 24)], FINE), "must be a power of two"),
    "alignment 1": (file([u32(b"general.alignment", 1)], FINE), "must be a power of two"),
    "alignment 2^31": (file([u32(b"general.alignment", 1 << 31)], FINE), "must be a power of two"),
    "alignment true": (file([key(b"general.alignment", BOOL, b"\x01")], FINE), "must be a power of two"),
    "alignment as a text": (file([key(b"general.alignment", STRING, text(b"32"))], FINE), "must be a power of two"),
    "alignment as a fraction": (file([key(b"general.alignment", F32, struct.pack("<f", 32))], FINE), "a power of two"),
    "no dimensions": (file([], [info(Tensor(dims=()))]), "has 0 dimensions"),
    "five dimensions": (file([], [info(Tensor(dims=(1,) * 5))]), "has 5 dimensions"),
    "2^32 - 1 dimensions": (file([], [text(b"a") + struct.pack("<IIQQ", 0xFFFFFFFF, 0, 0, 0)]), "4294967295 dim"),
    "a dimension of 0": (file([], [info(Tensor(dims=(0, 8)))]), "has shape [8, 0]"),
    "a product beyond 64 bits": (file([], [info(Tensor(dims=(1 << 32, 1 << 32)))]), "has shape"),
    "a product that is 0 modulo 2^64": (file([], [info(Tensor(dims=(1 << 16,) * 4))]), "has shape"),
    "an unknown type": (file([], [info(Tensor(kind=4))]), "has type 4, which is not known"),
    "a type of 2^32 - 1": (file([], [info(Tensor(kind=0xFFFFFFFF))]), "has type 4294967295"),
    "a row that is no whole block": (file([], [info(Tensor(dims=(33, 8), kind=2))]), "rows of 33 numbers"),
    "a row shorter than a block": (file([], [info(Tensor(dims=(32, 8), kind=12))]), "Q4_K has blocks of 256"),
    "an offset beyond the file": (file([], [info(Tensor(offset=1 << 40))]), "is incomplete: tensor token_embd.weight"),
    "an offset of 2^64 - 32": (file([], [info(Tensor(offset=(1 << 64) - 32))]), "is incomplete"),
    "an offset that is not aligned": (file([], [info(Tensor(offset=4))]), "is at 4, which is no multiple of 32"),
    "a tensor beyond the end": (file([], [info(Tensor(dims=(32, 9)))]), "is incomplete"),
    "two tensors in one place": (file([], [*FINE, info(Tensor(b"b", offset=992))], data=4096), "overlap"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_by_name_in_little_memory(tmp_path, case):
    content, words = WRONG[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ModelError) as caught:
        read_header(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert most < MUCH


def test_what_the_crafted_files_are_made_of_is_read_where_it_is_right(tmp_path):
    path = tmp_path / "model.gguf"
    keys = [u32(b"a", 7), array(b"b", STRING, 2, text(b"x") + text("é".encode())), key(b"c", BOOL, b"\x01")]
    tensors = [info(Tensor(b"two", offset=1024, kind=2)), info(Tensor(b"one", dims=(32, 8)))]
    path.write_bytes(file([*keys, array(b"d", U32, 2, struct.pack("<II", 1, 2))], tensors, data=2048))
    header = read_header(path)
    numbers = header.metadata.pop("d")
    assert header.metadata == {"a": 7, "b": ["x", "é"], "c": True}
    assert np.array_equal(numbers, [1, 2])
    assert {name: tensor.shape for name, tensor in header.tensors.items()} == {"one": (8, 32), "two": (8, 32)}
    assert [tensor.num_bytes for tensor in header.tensors.values()] == [1024, 144]


def test_any_change_of_some_bytes_gives_a_header_or_an_error(tmp_path):
    """Two thousand files, each with a few bytes of its header changed or cut off."""
    rng = np.random.default_rng(0)
    keys = [u32(b"general.alignment", 32), array(b"t", STRING, 3, text(b"a") * 3), array(b"n", F32, 2, b"\0" * 8)]
    right = np.frombuffer(file(keys, [*FINE, info(Tensor(b"b", (32,), 8, 1024))], data=1088), np.uint8)
    path, refused = tmp_path / "model.gguf", 0
    tracemalloc.start()
    for _ in range(2000):
        wrong = right.copy()
        places = rng.integers(4, len(right) - 1088, rng.integers(1, 4))
        wrong[places] = rng.integers(0, 256, len(places))
        path.write_bytes(wrong[: rng.integers(1, len(right)) if rng.random() < 0.1 else None].tobytes())
        try:
            read_header(path)
        except ModelError:
            refused += 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1000 < refused < 2000
    assert most < MUCH


def test_a_header_that_does_not_end_is_refused(tmp_path):
    """A sparse file of a gigabyte, all of which a text claims."""
    path = tmp_path / "model.gguf"
    size = 1 << 30
    with path.open("wb") as opened:
        opened.write(file([key(b"a", STRING, struct.pack("<Q", size >> 1))], data=0))
        opened.truncate(size)
    with pytest.raises(ModelError, match="does not end within 256 MiB"):
        read_header(path)
