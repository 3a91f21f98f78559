//! libpcap's compiler for tcpdump filters. The library is loaded on first use.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};
use std::{fmt, ptr, slice};

use libloading::{Library, Symbol};

/// A compiled filter for packets of one link type.
#[derive(Debug)]
pub struct Program {
    code: RawProgram,
    library: Library,
    run: RunFunction,
}

/// Reason why a filter was not compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotCompiled {
    /// libpcap cannot be loaded; contains the loader's message.
    Absent(String),
    /// The expression is invalid; contains the compiler's message.
    Expression(String),
}

impl fmt::Display for NotCompiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(why) | Self::Expression(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for NotCompiled {}

impl Program {
    /// Compiles an expression for packets of a link type, as `tcpdump -r` does.
    ///
    /// # Errors
    /// Returns [`NotCompiled`] if libpcap is missing or rejects the expression.
    pub fn compile(expression: &str, link_type: u32) -> Result<Self, NotCompiled> {
        let library = load()?;
        let functions = Functions::of(&library)?;
        let refused = |why: &str| NotCompiled::Expression(why.to_owned());
        let text = CString::new(expression).map_err(|_| refused("a zero byte"))?;
        let link_type = c_int::try_from(link_type).map_err(|_| refused("no such link type"))?;
        let link_type = data_link(link_type);
        // SAFETY: the function takes two numbers, as libpcap declares it, and returns null or a handle.
        let handle = unsafe { (functions.open_dead)(link_type, SNAPLEN) };
        if handle.is_null() {
            return Err(refused("no memory"));
        }
        let mut code = RawProgram { length: 0, instructions: ptr::null_mut() };
        // SAFETY: the handle is open, the text ends with a zero byte, and the program is written to a live value.
        let result = unsafe {
            (functions.compile)(handle, &raw mut code, text.as_ptr(), 1, NETMASK_UNKNOWN)
        };
        let error = (result != 0).then(|| {
            // SAFETY: the handle is open.
            let why = unsafe { (functions.error)(handle) };
            // SAFETY: the message is a string that ends with a zero byte and lives as long as the handle.
            refused(&unsafe { CStr::from_ptr(why) }.to_string_lossy())
        });
        // SAFETY: the handle is open, and not used from here on; the program does not depend on it.
        unsafe { (functions.close)(handle) };
        match error {
            Some(error) => Err(error),
            None => Ok(Self { code, run: functions.run, library }),
        }
    }

    /// Returns whether a packet passes the filter. `data` contains the captured bytes, and `original_len` is the length
    /// of the packet on the link.
    #[must_use]
    pub fn passes(&self, data: &[u8], original_len: u32) -> bool {
        let captured = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let header = RawHeader { seconds: 0, fraction: 0, captured, original: original_len };
        // SAFETY: the program came from the compiler and was not freed; the header states how many bytes of the packet
        // may be read, and the interpreter stays within them.
        let result = unsafe { (self.run)(&raw const self.code, &raw const header, data.as_ptr()) };
        result != 0
    }

    /// Returns the instructions, for a filter in the kernel.
    pub(crate) fn instructions(&self) -> Vec<libc::sock_filter> {
        let length = self.code.length as usize;
        // SAFETY: the compiler wrote `length` instructions in the kernel's layout, and they live as long as the
        // program.
        unsafe { slice::from_raw_parts(self.code.instructions, length) }.to_vec()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the symbol is libpcap's, with the type that its header declares.
        let free = unsafe { self.library.get::<FreeFunction>(b"pcap_freecode\0") };
        if let Ok(free) = free {
            // SAFETY: the program came from the compiler and is freed once.
            unsafe { free(&raw mut self.code) };
        }
    }
}

/// Returns libpcap's number on Linux for a link type in capture files. The two numbers differ for link types that had
/// system-specific numbers before there was a registry.
fn data_link(link_type: c_int) -> c_int {
    match link_type {
        100 => 11, // LINKTYPE_ATM_RFC1483
        101 => 12, // LINKTYPE_RAW
        102 => 15, // LINKTYPE_SLIP_BSDOS
        103 => 16, // LINKTYPE_PPP_BSDOS
        106 => 19, // LINKTYPE_ATM_CLIP
        same => same,
    }
}

/// The libpcap functions that compilation needs.
struct Functions {
    open_dead: OpenFunction,
    compile: CompileFunction,
    error: ErrorFunction,
    close: CloseFunction,
    run: RunFunction,
}

impl Functions {
    fn of(library: &Library) -> Result<Self, NotCompiled> {
        let absent = |error: libloading::Error| NotCompiled::Absent(error.to_string());
        // SAFETY: the symbol is libpcap's, with the type that its header declares.
        let open_dead = unsafe { library.get(b"pcap_open_dead\0") }.map_err(absent)?;
        // SAFETY: the symbol is libpcap's, with the type that its header declares.
        let compile = unsafe { library.get(b"pcap_compile\0") }.map_err(absent)?;
        // SAFETY: the symbol is libpcap's, with the type that its header declares.
        let error = unsafe { library.get(b"pcap_geterr\0") }.map_err(absent)?;
        // SAFETY: the symbol is libpcap's, with the type that its header declares.
        let close = unsafe { library.get(b"pcap_close\0") }.map_err(absent)?;
        // SAFETY: the symbol is libpcap's, with the type that its header declares.
        let run = unsafe { library.get(b"pcap_offline_filter\0") }.map_err(absent)?;
        let (open_dead, compile): (Symbol<'_, OpenFunction>, Symbol<'_, CompileFunction>) =
            (open_dead, compile);
        let (error, close): (Symbol<'_, ErrorFunction>, Symbol<'_, CloseFunction>) = (error, close);
        let run: Symbol<'_, RunFunction> = run;
        Ok(Self {
            open_dead: *open_dead,
            compile: *compile,
            error: *error,
            close: *close,
            run: *run,
        })
    }
}

/// Loads libpcap under the names that distributions use.
fn load() -> Result<Library, NotCompiled> {
    let mut why = String::new();
    for name in NAMES {
        // SAFETY: libpcap's initializers and finalizers require nothing of this program.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) => why = error.to_string(),
        }
    }
    Err(NotCompiled::Absent(why))
}

/// `struct bpf_program`.
#[derive(Debug)]
#[repr(C)]
struct RawProgram {
    length: c_uint,
    instructions: *mut libc::sock_filter,
}

/// `struct pcap_pkthdr`.
#[repr(C)]
struct RawHeader {
    seconds: c_long,
    fraction: c_long,
    captured: u32,
    original: u32,
}

type OpenFunction = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type CompileFunction =
    unsafe extern "C" fn(*mut c_void, *mut RawProgram, *const c_char, c_int, u32) -> c_int;
type ErrorFunction = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type CloseFunction = unsafe extern "C" fn(*mut c_void);
type RunFunction = unsafe extern "C" fn(*const RawProgram, *const RawHeader, *const u8) -> c_int;
type FreeFunction = unsafe extern "C" fn(*mut RawProgram);

/// File names of libpcap: the name on Debian, and the names on other distributions.
const NAMES: [&str; 3] = ["libpcap.so.0.8", "libpcap.so.1", "libpcap.so"];
/// Maximum number of bytes per packet that tcpdump keeps.
const SNAPLEN: c_int = 262_144;
/// `PCAP_NETMASK_UNKNOWN`.
const NETMASK_UNKNOWN: u32 = u32::MAX;
