//! Error numbers of `wasi_snapshot_preview1`: the results of host calls.

/// The result of a call: an error number for the guest if it failed.
pub type Checked<T> = Result<T, i32>;

pub const SUCCESS: i32 = 0;
pub const BADF: i32 = 8;
pub const BUSY: i32 = 10;
pub const EXIST: i32 = 20;
pub const FAULT: i32 = 21;
pub const INVAL: i32 = 28;
pub const ISDIR: i32 = 31;
pub const MFILE: i32 = 33;
pub const NAMETOOLONG: i32 = 37;
pub const NOENT: i32 = 44;
pub const NOSPC: i32 = 51;
pub const NOSYS: i32 = 52;
pub const NOTDIR: i32 = 54;
pub const NOTEMPTY: i32 = 55;
pub const PERM: i32 = 63;
pub const ROFS: i32 = 69;
pub const SPIPE: i32 = 70;
