//! The boot image of a VM: a kernel, and an initial file system with programs from the host.

use std::{
    env,
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use grosso_sys::path::{self, input};

use super::READY;

/// Contents of an initial file system in addition to the shell, `busybox` and `modprobe`.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// Names or paths of programs, which are copied together with their libraries.
    pub programs: &'a [&'a str],
    /// Names of kernel modules, which are copied together with their dependencies.
    pub modules: &'a [&'a str],
    /// Paths and contents of executable files.
    pub files: &'a [(&'a str, &'a [u8])],
}

/// A kernel and an initial file system for it.
#[derive(Debug)]
pub struct Image {
    kernel: PathBuf,
    file_system: PathBuf,
}

impl Image {
    /// Builds the initial file system in a directory.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written, or if something is [missing](super::missing).
    pub fn new(folder: &Path, kernel: Kernel, contents: &Contents<'_>) -> io::Result<Self> {
        let root = folder.join("root");
        for name in ["bin", "dev", "proc", "sys", "tmp"] {
            path::create_directories(&root.join(name), 0o755)?;
        }
        for program in ["busybox", "dash", "modprobe"].iter().chain(contents.programs) {
            copy_program(program, &root)?;
        }
        path::create_link(Path::new("dash"), &root.join("bin/sh"))?;
        kernel.copy_modules(contents.modules, &root)?;
        write_program(&root.join("init"), format!("{INIT}echo '{READY}'\n{SHELL}").as_bytes())?;
        for (path, bytes) in contents.files {
            write_program(&root.join(path), bytes)?;
        }
        let file_system = folder.join("initramfs.cpio");
        pack(&root, &file_system)?;
        let kernel = unpacked(&kernel.image, folder)?.unwrap_or(kernel.image);
        Ok(Self { kernel, file_system })
    }

    /// Returns the command that starts a VM whose network device is a TAP device in the command's network namespace. As
    /// on a real wire, the VM computes every checksum and segments every packet itself.
    #[must_use]
    pub fn machine_on(&self, tap: &str) -> Command {
        let tap = format!("tap,id=wire,ifname={tap},script=no,downscript=no,vhost=off");
        self.machine_at(&tap, "virtio-net-pci,netdev=wire,csum=off,gso=off,guest_csum=off")
    }

    /// Returns the command that starts a VM whose network device is one end of a QEMU link; the arguments are those of
    /// `-netdev` and `-device`.
    #[must_use]
    pub fn machine_at(&self, netdev: &str, device: &str) -> Command {
        let mut command = self.machine();
        command.args(["-netdev", netdev, "-device", device]);
        command
    }

    /// Returns the command that starts a VM without a network device.
    #[must_use]
    pub fn machine(&self) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        // If a CPU reports fast byte copies (`erms`), kernels copy byte by byte. On an emulated CPU this is slow:
        // copying words takes a third of the time.
        command.args(["-accel", "tcg", "-cpu", "max,erms=off", "-m", "512", "-no-reboot"]);
        command.args(["-display", "none", "-monitor", "none", "-serial", "null"]);
        command.args([
            "-serial",
            "stdio",
            "-append",
            "console=ttyS0 panic=-1 quiet mitigations=off",
        ]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.file_system);
        command
    }
}

/// A kernel and its modules, as distributions install them.
#[derive(Debug)]
pub struct Kernel {
    folder: PathBuf,
    release: String,
    image: PathBuf,
}

impl Kernel {
    /// Finds a kernel below a directory: `boot/vmlinuz-RELEASE` with `lib/modules/RELEASE`. The directory is `/`, or
    /// one into which a package was unpacked. If there are several kernels, returns the one whose name sorts last.
    ///
    /// # Errors
    ///
    /// Fails if there is no kernel, or none that this process may read.
    pub fn find(folder: &Path) -> io::Result<Self> {
        let images = input::entries(folder.join("boot")).into_iter().flatten();
        let with_modules = images.filter_map(|image| {
            let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            let has_modules = input::is_directory(folder.join("lib/modules").join(&release));
            has_modules.then(|| Self { folder: folder.into(), release, image })
        });
        let found = with_modules.max_by(|one, other| one.release.cmp(&other.release));
        let none = || {
            let at = folder.join("boot/vmlinuz-*");
            io::Error::other(format!("cannot find a kernel with modules at {}", at.display()))
        };
        let kernel = found.ok_or_else(none)?;
        let unread = |error| io::Error::other(format!("{}: {error}", kernel.image.display()));
        input::open_regular(&kernel.image).map_err(unread)?;
        Ok(kernel)
    }

    /// Returns the kernel's release, as `uname -r` prints it.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    fn copy_modules(&self, modules: &[&str], root: &Path) -> io::Result<()> {
        let folder = input::canonical(&self.folder)?;
        let version = ["-S", &self.release];
        for module in DEVICE.iter().chain(modules) {
            let mut list = command("modprobe");
            list.arg("-d").arg(&folder).args(version).args(["--show-depends", module]);
            for line in output(&mut list)?.lines() {
                let Some(path) = line.strip_prefix("insmod ") else { continue };
                let inside =
                    Path::new(path.trim()).strip_prefix(&folder).map_err(io::Error::other)?;
                copy(&folder.join(inside), &root.join(inside))?;
            }
        }
        let lists = Path::new("lib/modules").join(&self.release);
        for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
            copy(&folder.join(&lists).join(name), &root.join(&lists).join(name))?;
        }
        output(command("depmod").arg("-b").arg(root).arg(&self.release)).map(drop)
    }
}

/// Unpacks the kernel in a bzImage to a file in `folder`. A VM can boot this file directly, which saves the five
/// seconds that an emulated CPU needs for the unpacking. Returns `None` if the file is not a bzImage, if it has no
/// entry point for VMs, or if the tool that can decompress it is missing.
fn unpacked(image: &Path, folder: &Path) -> io::Result<Option<PathBuf>> {
    let Some((tool, packed)) = payload(&read(input::open_regular(image)?)?) else {
        return Ok(None);
    };
    let [from, to] = ["vmlinux.packed", "vmlinux"].map(|name| folder.join(name));
    path::write(&from, &packed, 0o600)?;
    let mut unpack = command(tool);
    unpack.arg("-dc").stdin(path::open(&from)?).stdout(path::create(&to, 0o600)?);
    // The length field is stored after the packed kernel and is not part of it. Some tools complain about such trailing
    // bytes.
    if unpack.stderr(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    path::remove(&from)?;
    let is_bootable =
        read(path::open(&to)?)?.windows(ENTRY.len()).step_by(4).any(|note| note == ENTRY);
    Ok(is_bootable.then_some(to))
}

/// Returns the packed kernel in a bzImage, and the name of the tool that can unpack it
/// (Documentation/arch/x86/boot.rst: `setup_sects`, `version`, `payload_offset` and `payload_length`).
fn payload(image: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if image.get(0x202..0x206)? != b"HdrS" || number(0x206)? & 0xffff < 0x208 {
        return None;
    }
    let setup = match image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let packed = image.get((setup + 1) * 512 + number(0x248)?..)?.get(..number(0x24c)?)?;
    let (_, tool) = PACKED.iter().find(|(magic, _)| packed.starts_with(magic))?;
    Some((tool, packed.to_vec()))
}

/// Returns the path of a program.
pub(super) fn path_of(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    // Ordinary users often have no administration programs in their `PATH`.
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|path| input::is_file(path))
}

/// Returns the command for a program that may not be in an ordinary user's `PATH`.
fn command(program: &str) -> Command {
    Command::new(path_of(program).unwrap_or_else(|| program.into()))
}

/// Copies a program and the libraries that it needs.
fn copy_program(program: &str, root: &Path) -> io::Result<()> {
    let missing = || io::Error::other(format!("{program} is not installed"));
    let path = path_of(program).ok_or_else(missing)?;
    let name = path.file_name().unwrap_or_else(|| program.as_ref());
    let inside = root.join("bin").join(name);
    copy(&path, &inside)?;
    // A VM needs seconds to unpack a program's symbols. Without `strip`, they stay.
    let _ = Command::new("strip").arg(&inside).stdin(Stdio::null()).stderr(Stdio::null()).status();
    // `ldd` fails if the program has no libraries.
    let listed = Command::new("ldd").arg(&path).output()?;
    for word in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
        if let Some(inside) = word.strip_prefix('/') {
            copy(Path::new(word), &root.join(inside))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        path::create_directories(folder, 0o755)?;
    }
    let told = |error| io::Error::other(format!("{}: {error}", from.display()));
    let copied = || {
        let mut file = input::open_regular(from)?;
        let mode = file.metadata()?.permissions().mode();
        io::copy(&mut file, &mut path::create(to, mode)?)
    };
    copied().map(drop).map_err(told)
}

fn read(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn write_program(path: &Path, bytes: &[u8]) -> io::Result<()> {
    path::write(path, bytes, 0o755)
}

fn pack(root: &Path, to: &Path) -> io::Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "find . | cpio -o -H newc --quiet"]).current_dir(root);
    let status = command.stdout(path::create(to, 0o600)?).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cpio: {status}"))) }
}

/// Returns the output of a command that must succeed.
fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {errors}")))
}

/// Programs that every image needs.
pub(super) const TOOLS: &[&str] = &["busybox", "dash", "modprobe", "depmod", "cpio", "ldd"];

/// The first bytes of compressed data, and the tool that decompresses it.
const PACKED: [(&[u8], &str); 4] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b", "gzip"),
    (b"\x02\x21\x4c\x18", "lz4"),
];

/// Start of the ELF note with a kernel's entry point for VMs: the lengths of the note's name and of an address, the
/// type `XEN_ELFNOTE_PHYS32_ENTRY`, and the name.
const ENTRY: &[u8] = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0";

/// Kernel modules for the VM's network device.
const DEVICE: &[&str] = &["virtio_pci", "virtio_net"];

/// First program that the VM runs. The busybox shell would run its own `ip`, even if `/bin` contains another one.
const INIT: &str = "#!/bin/dash
/bin/busybox mkdir /applets
/bin/busybox --install -s /applets
export PATH=/bin:/applets
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
echo /bin/modprobe > /proc/sys/kernel/modprobe
modprobe -a virtio_pci virtio_net
stty -F /dev/ttyS1 raw -echo
exec < /dev/ttyS1 > /dev/ttyS1 2>&1
";

/// Shell that runs the scripts. It reads them from a file, because on a terminal it would print prompts.
const SHELL: &str = "exec dash /dev/ttyS1\n";
