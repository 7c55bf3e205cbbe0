"""wheel_check.py FILE.whl: what its name promises: nothing but glibc is needed, of the version in its platform tag at
most; code is for its architecture; every symbol that is left open names the version of glibc that has it; pages may be
of 64 KiB on aarch64; the licences are inside."""

import io
import re
import sys
import zipfile

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection

LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread)\.so\.[0-9]+|ld-linux-[a-z0-9-]+\.so\.[0-9]+")
MACHINES = {"x86_64": ("EM_X86_64", 4096), "aarch64": ("EM_AARCH64", 65536)}


def faults(elf: ELFFile, machine: str, page: int, newest: tuple[int, int]):
    if elf["e_machine"] != machine:
        yield f"is for {elf['e_machine']}, not for {machine}"
    for segment in elf.iter_segments("PT_LOAD"):
        if segment["p_align"] < page:
            yield f"is laid out for pages of {segment['p_align']} bytes, not of {page}"
    for tag in elf.get_section_by_name(".dynamic").iter_tags():
        if tag.entry.d_tag == "DT_NEEDED" and not LIBRARIES.fullmatch(tag.needed):
            yield f"needs {tag.needed}"
        if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH", "DT_TEXTREL"):
            yield f"has {tag.entry.d_tag}"
    versions = {}
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, entries in section.iter_versions():
                versions.update({entry["vna_other"]: entry.name for entry in entries})
    for version in versions.values():
        number = re.fullmatch(r"GLIBC_([0-9]+)\.([0-9]+)(?:\.[0-9]+)?", version)
        if not number or (int(number[1]), int(number[2])) > newest:
            yield f"needs {version}"
    numbers = next((s for s in elf.iter_sections() if isinstance(s, GNUVerSymSection)), None)
    for i, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
        is_open = symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
        if is_open and numbers and numbers.get_symbol(i)["ndx"] in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL"):
            yield f"leaves {symbol.name} open, which that glibc does not have"


def main(path: str) -> int:
    tag = re.search(r"manylinux_([0-9]+)_([0-9]+)_(x86_64|aarch64)\.whl$", path)
    if not tag:
        sys.exit(f"{path}: expected a name that ends with manylinux_2_28_x86_64.whl or manylinux_2_28_aarch64.whl")
    newest = int(tag[1]), int(tag[2])
    machine, page = MACHINES[tag[3]]
    found, bad = [], []
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        for name in names:
            data = wheel.read(name)
            if data[:4] == b"\x7fELF":
                found.append(name)
                bad += [f"{name} {fault}" for fault in faults(ELFFile(io.BytesIO(data)), machine, page, newest)]
    for wanted in ("lathe/lib/liblathe.so", "scripts/lathe", "lathe/LICENSE", "lathe/THIRD_PARTY", "lathe/py.typed"):
        if not any(name.endswith(wanted) for name in names):
            bad.append(f"has no {wanted}")
    for line in bad:
        print(f"{path}: {line}", file=sys.stderr)
    print(f"{path.rsplit('/', 1)[-1]}: {len(found)} files of machine code, {'FAILED' if bad else 'as its name says'}")
    return 1 if bad or len(found) != 2 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
