//! Objects, and the tables of their operations.

use std::ffi::{c_char, c_int, c_void};

use super::*;

/// An address in an address vector.
pub type fi_addr_t = u64;

/// An operation that this crate never calls.
pub type Unused = Option<unsafe extern "C" fn()>;

/// Tables of operations: the size in bytes, then a function pointer for each name, in the order of the headers. This
/// crate never calls an operation that stands without parameters.
macro_rules! tables {
    ($($name:ident { $($operation:ident $(($($parameter:ty),*) -> $result:ty)?,)* })*) => {$(
        #[repr(C)]
        #[derive(Copy, Clone)]
        pub struct $name {
            pub size: usize,
            $(pub $operation: tables!(@ $(($($parameter),*) -> $result)?),)*
        }

        impl $name {
            /// A table of full length without any operation.
            pub const EMPTY: Self = Self {
                size: size_of::<Self>(),
                $($operation: None,)*
            };
        }
    )*};
    (@) => { Unused };
    (@ ($($parameter:ty),*) -> $result:ty) => { Option<unsafe extern "C" fn($($parameter),*) -> $result> };
}

tables! {
    // Every object has this table.
    fi_ops {
        close(*mut fid) -> c_int,
        bind(*mut fid, *mut fid, u64) -> c_int,
        control(*mut fid, c_int, *mut c_void) -> c_int,
        ops_open(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
        tostr,
        ops_set,
    }
    fi_ops_fabric {
        domain(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int,
        passive_ep,
        eq_open,
        wait_open,
        trywait,
        domain2,
    }
    fi_ops_domain {
        av_open(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int,
        cq_open(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int,
        endpoint(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
        scalable_ep,
        cntr_open(*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void) -> c_int,
        poll_open,
        stx_ctx,
        srx_ctx,
        query_atomic,
        query_collective,
        endpoint2,
    }
    fi_ops_mr {
        reg,
        regv,
        regattr(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int,
    }
    fi_ops_av {
        insert(*mut fid_av, *const c_void, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int,
        insertsvc,
        insertsym,
        remove,
        lookup,
        straddr,
        av_set,
    }
    fi_ops_cq {
        read(*mut fid_cq, *mut c_void, usize) -> isize,
        readfrom,
        readerr(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize,
        sread(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> isize,
        sreadfrom,
        signal(*mut fid_cq) -> c_int,
        strerror(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }
    fi_ops_cntr {
        read(*mut fid_cntr) -> u64,
        readerr(*mut fid_cntr) -> u64,
        add(*mut fid_cntr, u64) -> c_int,
        set(*mut fid_cntr, u64) -> c_int,
        wait,
        adderr,
        seterr,
    }
    fi_ops_cm {
        setname,
        getname(*mut fid, *mut c_void, *mut usize) -> c_int,
        getpeer,
        connect,
        listen,
        accept,
        reject,
        shutdown,
        join,
    }
    fi_ops_rma {
        read,
        readv,
        readmsg(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
        write,
        writev,
        writemsg(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
        inject,
        writedata,
        injectdata(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> isize,
    }
    fi_ops_atomic {
        write,
        writev,
        writemsg,
        inject,
        readwrite,
        readwritev,
        readwritemsg,
        compwrite,
        compwritev,
        compwritemsg,
        writevalid(*mut fid_ep, fi_datatype, fi_op, *mut usize) -> c_int,
        readwritevalid,
        compwritevalid,
    }
}

/// The structure that every object begins with.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *mut fi_ops,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *mut fi_ops_fabric,
    pub api_version: u32,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *mut fi_ops_domain,
    pub mr: *mut fi_ops_mr,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *mut fi_ops_av,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *mut fi_ops_cq,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *mut fi_ops_cntr,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *mut c_void,
    pub cm: *mut fi_ops_cm,
    pub msg: *mut c_void,
    pub rma: *mut fi_ops_rma,
    pub tagged: *mut c_void,
    pub atomic: *mut fi_ops_atomic,
    pub collective: *mut c_void,
}
