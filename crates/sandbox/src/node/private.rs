//! A shared library that closes the memory and the descriptors of a process to all processes of the same user, itself
//! included.
//!
//! Code that can write the memory of the process of the tests can change the values that they compare. Node has no call
//! for `prctl`, and `execve` takes back what a parent has set, so the loader brings this library into node before its first
//! line. It is an initialiser with one system call, and is written here byte by byte: a compiler is not needed, neither here
//! nor on the machine of a user. The form is that of `elf(5)`.

/// The initialiser: `prctl(PR_SET_DUMPABLE, 0)`, and back.
#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[
    0xb8, 0x9d, 0, 0, 0, // mov eax, 157
    0xbf, 4, 0, 0, 0, // mov edi, 4
    0x31, 0xf6, // xor esi, esi
    0x31, 0xd2, // xor edx, edx
    0x45, 0x31, 0xd2, // xor r10d, r10d
    0x45, 0x31, 0xc0, // xor r8d, r8d
    0x0f, 0x05, // syscall
    0xc3, // ret
    0,
];
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[
    0xe8, 0x14, 0x80, 0xd2, // mov x8, #167
    0x80, 0x00, 0x80, 0xd2, // mov x0, #4
    0x01, 0x00, 0x80, 0xd2, // mov x1, #0
    0x02, 0x00, 0x80, 0xd2, // mov x2, #0
    0x03, 0x00, 0x80, 0xd2, // mov x3, #0
    0x04, 0x00, 0x80, 0xd2, // mov x4, #0
    0x01, 0x00, 0x00, 0xd4, // svc #0
    0xc0, 0x03, 0x5f, 0xd6, // ret
];
/// The sandbox refuses other processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CODE: &[u8] = &[];

/// The number of the processor in the file.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

const HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const ENTRY_BYTES: u64 = 16;
const SYMBOL_BYTES: u64 = 24;

/// The largest page of these processors. The loader maps the file a second time there, to be written.
const PAGE: u64 = 0x10000;

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const STACK: u32 = 0x6474_e551;
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;

/// Returns the file. Its parts in order: header, segments, code, entries for the loader, and one empty symbol.
pub(super) fn library() -> Vec<u8> {
    let code = HEADER_BYTES + 4 * SEGMENT_BYTES;
    let entries = (code + CODE.len() as u64).next_multiple_of(8);
    let symbols = entries + 6 * ENTRY_BYTES;
    let end = symbols + SYMBOL_BYTES;

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    for half in [3, MACHINE] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [0, HEADER_BYTES, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 4, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }

    for (kind, flags, [start, address, bytes, alignment]) in [
        (LOAD, READ | EXECUTE, [0, 0, end, PAGE]),
        (LOAD, READ | WRITE, [0, PAGE, end, PAGE]),
        (DYNAMIC, READ | WRITE, [entries, PAGE + entries, 6 * ENTRY_BYTES, 8]),
        // Without it the loader would make the stack executable.
        (STACK, READ | WRITE, [0, 0, 0, 16]),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [start, address, address, bytes, bytes, alignment] {
            file.extend(word.to_le_bytes());
        }
    }

    file.extend(CODE);
    file.resize(usize::try_from(entries).expect("the file has less than a page"), 0);
    // The initialiser, the names, the symbols, the size of the names, the size of a symbol, and the end.
    for (kind, value) in
        [(12, code), (5, PAGE + symbols), (6, PAGE + symbols), (10, 1), (11, SYMBOL_BYTES), (0, 0)]
    {
        file.extend(u64::to_le_bytes(kind));
        file.extend(value.to_le_bytes());
    }
    file.resize(usize::try_from(end).expect("the file has less than a page"), 0);
    file
}
