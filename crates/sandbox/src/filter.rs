//! The system call filter, as the bytes bubblewrap loads.
//!
//! A deny-list: an allow-list would break the next language runtime, and the namespaces, the
//! missing capabilities and the empty network remain behind it. It blocks calls that reach much
//! kernel code and that no test needs. Three programs, because each has one answer: EPERM, ENOSYS,
//! or death.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use super::error::SandboxError;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Compiles the filter for this processor; each element is one program for `--add-seccomp-fd`.
pub(super) fn compile() -> Result<Vec<Vec<u8>>, SandboxError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| SandboxError::UnsupportedArchitecture(std::env::consts::ARCH))?;
    let denied = program(denied_rules()?, libc::EPERM, architecture)?;
    let absent = program(ABSENT.map(|call| (call, Vec::new())).into(), libc::ENOSYS, architecture)?;
    let mut programs = vec![denied, absent];
    if cfg!(target_arch = "x86_64") {
        programs.push(without_x32());
    }
    Ok(programs.iter().map(|program| bytes(program)).collect())
}

/// Calls that are refused with any arguments.
const DENIED: &[i64] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // Calls that bypass this filter, programs in the kernel, and its richest sources of bugs.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    libc::SYS_vmsplice,
    // Queues of messages and sets of semaphores, which the kernel keeps. A limit on the size of a set bounds
    // nothing: for each process, the kernel keeps a record of each of 32,000 sets. POSIX semaphores are memory of the process.
    libc::SYS_msgget,
    libc::SYS_semget,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The machine.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // Address space tricks.
    libc::SYS_personality,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
];

/// Calls that this kernel seems to lack, so that programs use others.
const ABSENT: [i64; 3] = [
    // Its arguments are in memory, which a filter cannot read. C libraries fall back to clone, whose flags are an argument.
    libc::SYS_clone3,
    // Memory behind a descriptor belongs to no process, so the memory limit would miss it.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
];

/// The largest segment of System V shared memory. The kernel keeps 4,096 of them, also without a process, where the memory
/// limit would miss them.
const SEGMENT_BYTES_MAX: u64 = 16 << 10;

/// Calls that exist only on this processor.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[i64] = &[];

/// Terminal requests that inject input into the terminal, or paste from it.
const DENIED_REQUESTS: [u64; 2] = [libc::TIOCSTI, 0x541C /* TIOCLINUX */];

const NAMESPACE_FLAGS: [libc::c_int; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    0x80, // CLONE_NEWTIME, which clone itself reads as a part of the exit signal; refused all the same
];

fn denied_rules() -> Result<Rules, BackendError> {
    let mut rules: Rules =
        DENIED.iter().chain(DENIED_HERE).map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_socket, vec![foreign_address_family()?]);
    rules.insert(libc::SYS_shmget, vec![large_segment()?]);
    rules.insert(
        libc::SYS_clone,
        NAMESPACE_FLAGS.map(has_flag).into_iter().collect::<Result<_, _>>()?,
    );
    rules.insert(
        libc::SYS_ioctl,
        DENIED_REQUESTS.map(is_request).into_iter().collect::<Result<_, _>>()?,
    );
    Ok(rules)
}

/// Matches sockets of any family but the local one and the two of the Internet, whose namespace is
/// empty. Vsock, for one, has no namespaces and would reach the hypervisor.
fn foreign_address_family() -> Result<SeccompRule, BackendError> {
    let other_than = |family: libc::c_int| {
        SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Ne,
            family.unsigned_abs().into(),
        )
    };
    SeccompRule::new(vec![
        other_than(libc::AF_UNIX)?,
        other_than(libc::AF_INET)?,
        other_than(libc::AF_INET6)?,
    ])
}

fn large_segment() -> Result<SeccompRule, BackendError> {
    let is_large =
        SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Gt, SEGMENT_BYTES_MAX)?;
    SeccompRule::new(vec![is_large])
}

fn has_flag(flag: libc::c_int) -> Result<SeccompRule, BackendError> {
    let flag = u64::from(flag.unsigned_abs());
    let condition =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
    SeccompRule::new(vec![condition])
}

fn is_request(request: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(
        1,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        request,
    )?])
}

fn program(
    rules: Rules,
    errno: libc::c_int,
    architecture: TargetArch,
) -> Result<BpfProgram, BackendError> {
    let answer = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture)?.try_into()
}

/// Returns a program that kills a process for an x32 call: these are the same calls under other numbers, which the
/// other programs do not cover.
fn without_x32() -> BpfProgram {
    const LOAD_CALL_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS, offset 0 of seccomp_data
    const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const X32_BIT: u32 = 0x4000_0000;
    let line = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    vec![
        line(LOAD_CALL_NUMBER, 0, 0),
        line(JUMP_IF_AT_LEAST, 1, X32_BIT),
        line(RETURN, 0, libc::SECCOMP_RET_ALLOW),
        line(RETURN, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ]
}

/// Lays the program out as the kernel's `struct sock_filter[]`.
fn bytes(program: &[sock_filter]) -> Vec<u8> {
    program
        .iter()
        .flat_map(|line| {
            let [code_low, code_high] = line.code.to_ne_bytes();
            let [k0, k1, k2, k3] = line.k.to_ne_bytes();
            [code_low, code_high, line.jt, line.jf, k0, k1, k2, k3]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_a_length_that_the_kernel_accepts() {
        let programs = compile().unwrap();
        assert_eq!(programs.len(), if cfg!(target_arch = "x86_64") { 3 } else { 2 });
        for program in programs {
            assert_eq!(program.len() % 8, 0);
            assert!(program.len() / 8 <= 4096, "BPF_MAXINSNS");
        }
    }

    #[test]
    fn instructions_are_laid_out_as_the_kernel_reads_them() {
        let line = sock_filter { code: 0x0102, jt: 3, jf: 4, k: 0x0506_0708 };
        let expected = if cfg!(target_endian = "little") {
            [2, 1, 3, 4, 8, 7, 6, 5]
        } else {
            [1, 2, 3, 4, 5, 6, 7, 8]
        };
        assert_eq!(bytes(&[line]), expected);
    }
}
