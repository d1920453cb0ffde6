//! Acts inside of a sandbox from outside, before its program starts.
//!
//! A sandbox is made by bubblewrap, and some things cannot be asked of it. The kernel allows the user who made a user
//! namespace everything inside of it, so a process of that user can enter the namespaces that belong to it, and make
//! sockets and mounts there. It needs a process with one thread: a child between `fork` and `exec`. There it may call the
//! kernel and must not allocate, because another thread may have held a lock of the allocator at the fork. The child
//! shares the memory of this process, so it does its few calls and ends; no program inside can see it, because it stays
//! in the process namespace of the host.

#![expect(
    unsafe_code,
    reason = "it calls the kernel between `fork` and `exec`, and takes descriptors from it"
)]

use std::{
    fs::File,
    io::{self, IoSliceMut},
    mem,
    net::TcpListener,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    ptr,
};

use nix::{
    cmsg_space, libc, request_code_none,
    sched::{CloneFlags, setns},
    sys::socket::{
        AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn,
        bind, listen, recvmsg, socket,
    },
};

use super::network::PROXY_PORT;

/// The connections that wait to be accepted.
const WAITING_MAX: i32 = 128;

/// The request of `ioctl` for the user namespace that owns another namespace (`NS_GET_USERNS` of `linux/nsfs.h`).
const OWNER_OF_NAMESPACE: libc::c_ulong = request_code_none!(0xb7, 0x1);

/// The namespaces of a sandbox.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// The user namespace that owns the others. The program inside is in one below it.
    user: OwnedFd,
    network: OwnedFd,
}

impl Namespaces {
    /// Opens the namespaces of a process inside, which must wait meanwhile: its number may not mean another process.
    pub(super) fn of(process: u32) -> io::Result<Self> {
        let network: OwnedFd = File::open(format!("/proc/{process}/ns/net"))?.into();
        Ok(Self { user: owner_of(network.as_fd())?, network })
    }

    /// Listens on the loopback of the sandbox. `user` is the user who made it, if it is another one than this process.
    pub(super) fn listen(&self, user: Option<u32>) -> io::Result<TcpListener> {
        let (receiver, sender) = UnixStream::pair()?;
        self.visit(user, move |namespaces| {
            setns(&namespaces.network, CloneFlags::CLONE_NEWNET)?;
            let made = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
            bind(made.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, PROXY_PORT))?;
            listen(&made, Backlog::new(WAITING_MAX)?)?;
            send_descriptor(sender.as_fd(), made.as_fd())
        })?;
        receive_descriptor(&receiver).map(TcpListener::from)
    }

    /// Performs some calls of the kernel in the user namespace, by a child process that ends then.
    fn visit(
        &self,
        user: Option<u32>,
        perform: impl Fn(&Self) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let namespaces = Self { user: self.user.try_clone()?, network: self.network.try_clone()? };
        // The child has to become some program, and this one does nothing.
        let mut command = Command::new(Path::new("/usr/bin/true"));
        command.env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let enter = move || {
            setns(&namespaces.user, CloneFlags::CLONE_NEWUSER)?;
            perform(&namespaces)
        };
        // SAFETY: `setns` and the closures of this file call the kernel only, and allocate nothing; the errors are
        // numbers.
        unsafe { command.pre_exec(enter) };
        let ended = command.spawn()?.wait()?;
        if ended.success() { Ok(()) } else { Err(io::Error::other("`true` failed")) }
    }
}

/// Returns the user namespace that owns a namespace.
fn owner_of(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument, and returns a new descriptor or an error.
    let owner = unsafe { libc::ioctl(namespace.as_raw_fd(), OWNER_OF_NAMESPACE) };
    if owner < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(owner) })
}

/// The size of a descriptor in a control message.
const DESCRIPTOR_BYTES: u32 = 4;

/// Room for the header of a control message and one descriptor. The kernel reads it as `cmsghdr`.
#[repr(C, align(8))]
struct OneDescriptor([u8; 32]);

/// Sends a descriptor with one byte. The function of `nix` for this allocates, which a child after `fork` must not do.
fn send_descriptor(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = 0u8;
    let mut piece = libc::iovec { iov_base: ptr::from_mut(&mut byte).cast(), iov_len: 1 };
    let mut control = OneDescriptor([0; 32]);
    let number = descriptor.as_raw_fd();
    // SAFETY: all zeros is a message without anything; the pointers are to values of this function, which outlive the
    // call. `CMSG_SPACE` of one descriptor is 24 bytes on 64-bit machines, so `control` has room for the header and it.
    let sent = unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(DESCRIPTOR_BYTES) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(DESCRIPTOR_BYTES) as _;
        ptr::write_unaligned(libc::CMSG_DATA(header).cast(), number);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0u8];
    let mut pieces = [IoSliceMut::new(&mut byte)];
    let mut space = cmsg_space!(libc::c_int);
    // The sender has ended, so the message is there or will never be.
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut space), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control
            && let Some(number) = numbers.first()
        {
            // SAFETY: the kernel has just made it, and nothing else has it.
            return Ok(unsafe { OwnedFd::from_raw_fd(*number) });
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
