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
    ffi::{CStr, CString},
    fs::File,
    io::{self, IoSliceMut},
    mem,
    net::TcpListener,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    ptr,
};

use nix::{
    cmsg_space, libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    request_code_none,
    sched::{CloneFlags, setns},
    sys::{
        socket::{
            AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn,
            bind, listen, recvmsg, socket,
        },
        stat::{Mode, SFlag, mknod},
    },
    unistd::chdir,
};

use super::network::PROXY_PORT;

/// The connections that wait to be accepted.
const WAITING_MAX: i32 = 128;

/// The request of `ioctl` for the user namespace that owns another namespace (`NS_GET_USERNS` of `linux/nsfs.h`).
const OWNER_OF_NAMESPACE: libc::c_ulong = request_code_none!(0xb7, 0x1);

/// The folders in `/box` whose layers become the new `/box`, as `mount` takes them. `userxattr`: only privileged users have the
/// attributes that are the default.
const LAYERS: &CStr = c"lowerdir=/box/lower,upperdir=/box/upper,workdir=/box/work,userxattr";
/// An attribute that file systems accept if the layers can be above them.
const ATTRIBUTE: &CStr = c"user.graphrun";

/// The namespaces of a sandbox.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// The user namespace that owns the others. The program inside is in one below it.
    user: OwnedFd,
    network: OwnedFd,
    mounts: OwnedFd,
}

impl Namespaces {
    /// Opens the namespaces of a process inside, which must wait meanwhile: its number may not mean another process.
    pub(super) fn of(process: u32) -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/{process}/ns/{name}")).map(OwnedFd::from);
        let network = open("net")?;
        let mounts = open("mnt")?;
        Ok(Self { user: owner_of(network.as_fd())?, network, mounts })
    }

    fn try_clone(&self) -> io::Result<Self> {
        let Self { user, network, mounts } = self;
        let user = user.try_clone()?;
        let network = network.try_clone()?;
        Ok(Self { user, network, mounts: mounts.try_clone()? })
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

    /// Mounts a folder of the host as the lower layer of the work folder, below a writable layer. The changes
    /// of programs are in the upper layer, which has the room of the work folder; the folder itself is read-only. `.git` does not appear.
    ///
    /// bubblewrap has made `lower`, `upper` and `work` in `/box`. `lower` is the folder already, unless `user` is another one
    /// than this process: then this process alone can read the folder, and mounts it with `user` in place of its owner.
    pub(super) fn mount_folder(&self, user: Option<u32>, folder: &Path) -> io::Result<()> {
        let lower = user.map(|_| self.open_as_user(folder)).transpose()?;
        self.visit(user, move |namespaces| {
            setns(&namespaces.mounts, CloneFlags::CLONE_NEWNS)?;
            chdir(c"/box")?;
            if let Some(lower) = &lower {
                attach(lower.as_fd(), c"lower")?;
            }
            // This device is how layers write that a name is removed.
            mknod(c"upper/.git", SFlag::S_IFCHR, Mode::empty(), 0)?;
            check_attributes(c"upper")?;
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount(Some(c"overlay"), c"/box", Some(c"overlay"), flags, Some(LAYERS))?;
            // This process still stands in the old work folder. The layers keep the folder.
            umount2(c"lower", MntFlags::MNT_DETACH)?;
            Ok(())
        })
    }

    /// Opens a folder as a mount whose files belong to the user of the sandbox in place of their owner.
    fn open_as_user(&self, folder: &Path) -> io::Result<OwnedFd> {
        let path = CString::new(folder.as_os_str().as_bytes())?;
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
        // SAFETY: the path is a text with its end, and the kernel returns a new descriptor or an error.
        let tree =
            unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
        let tree = libc::c_int::try_from(tree).unwrap_or(-1);
        if tree < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, and nothing else has it.
        let tree = unsafe { OwnedFd::from_raw_fd(tree) };
        let attributes = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP
                | libc::MOUNT_ATTR_RDONLY
                | libc::MOUNT_ATTR_NOSUID
                | libc::MOUNT_ATTR_NODEV,
            attr_clr: 0,
            propagation: 0,
            userns_fd: self.user.as_raw_fd().unsigned_abs().into(),
        };
        // SAFETY: the pointers are to values that outlive the call, and the length is the one of the structure.
        let changed = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size_of_val(&attributes),
            )
        };
        if changed == 0 { Ok(tree) } else { Err(io::Error::last_os_error()) }
    }

    /// Performs some calls of the kernel in the user namespace, by a child process that ends then.
    fn visit(
        &self,
        user: Option<u32>,
        perform: impl Fn(&Self) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let namespaces = self.try_clone()?;
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

/// Attaches a mount to a folder of this mount namespace.
fn attach(mount: BorrowedFd<'_>, folder: &CStr) -> io::Result<()> {
    // SAFETY: the paths are texts with their ends, and the kernel changes nothing of this process.
    let attached = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            folder.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    if attached == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Checks that files of a folder can have attributes of users. Without them, a removed folder of the lower layer would
/// appear again when a new one has its name.
fn check_attributes(folder: &CStr) -> io::Result<()> {
    let value = [b'y'];
    // SAFETY: the paths and names are texts with their ends, and the length is the one of the value.
    let changed = unsafe {
        let set = libc::setxattr(
            folder.as_ptr(),
            ATTRIBUTE.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        );
        if set == 0 { libc::removexattr(folder.as_ptr(), ATTRIBUTE.as_ptr()) } else { set }
    };
    if changed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

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
