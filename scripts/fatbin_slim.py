"""Blanks the GPU images of a shared library that are not for one architecture, so that it compresses well.

fatbin_slim.py FROM TO 90

keeps sm_90. The library still loads: headers stay, and only the payload of other images becomes zeros. `xz` then makes 45 MB of
the 344 MB of NCCL 2.32.3, and 6 MB of the 49 MB of NVSHMEM 3.8.0. For machines that another library is carried to.
"""
import struct
import sys

MAGIC = b"\x50\xed\x55\xba"  # of a fat binary: magic, version u16, header size u16, size u64


def main(source: str, target: str, keep: int) -> None:
    data = bytearray(open(source, "rb").read())
    at = kept = cut = 0
    while (at := data.find(MAGIC, at)) >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if header != 16 or size == 0 or at + 16 + size > len(data):
            at += 4
            continue
        entry, end = at + header, at + header + size
        while entry + 64 <= end:
            kind, _, length, payload = struct.unpack_from("<HHIQ", data, entry)
            arch = struct.unpack_from("<I", data, entry + 28)[0]
            if kind not in (1, 2, 8, 16, 64) or not 32 <= length <= 1024 or entry + length + payload > end + 16:
                break
            if arch == keep:
                kept += payload
            else:
                data[entry + length : entry + length + payload] = bytes(payload)
                cut += payload
            entry += length + payload
        at = end if entry >= end - 16 else at + 4
    open(target, "wb").write(data)
    print(f"kept {kept >> 20} MiB, blanked {cut >> 20} MiB")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
