//! A connection to the launcher's server.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use super::error::{PmixError, Result};
use super::load::Library;
use super::sys::{
    self, PMIX_MAX_KEYLEN, PMIX_MAX_NSLEN, pmix_info_t, pmix_proc_t, pmix_rank_t, pmix_value_data,
    pmix_value_t,
};

unsafe extern "C" {
    // The C library's. PMIx before version 5 has no function that frees a value: its header calls this one.
    fn free(memory: *mut c_void);
}

/// A client of the launcher's server: this process, as the server knows it. Dropping the client finalises it.
///
/// All calls block. Any thread can make them.
pub struct Client {
    library: Library,
    me: pmix_proc_t,
    finalized: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("library", &self.library)
            .field("namespace", &self.namespace())
            .field("rank", &self.rank())
            .finish_non_exhaustive()
    }
}

impl Library {
    /// Connects to the server that the environment names (`PMIX_NAMESPACE`, `PMIX_RANK`, `PMIX_SERVER_URI…`).
    ///
    /// # Errors
    ///
    /// The library's, if there is no server, or if the server refuses this process.
    pub fn init(&self) -> Result<Client> {
        let mut me = pmix_proc_t {
            nspace: [0; PMIX_MAX_NSLEN + 1],
            rank: 0,
        };
        // SAFETY: `me` is writable, and has the layout of the library's version, which was checked when it was loaded.
        // No attributes are passed.
        let status = unsafe { (self.functions().init)(&mut me, ptr::null_mut(), 0) };
        self.check("PMIx_Init", status)?;
        // The name ends here, whatever the library has written.
        me.nspace[PMIX_MAX_NSLEN] = 0;
        Ok(Client {
            library: self.clone(),
            me,
            finalized: false,
        })
    }
}

impl Client {
    /// The job, as the server calls it.
    pub fn namespace(&self) -> String {
        // SAFETY: `init` has set the last character to NUL, and nothing has written there since.
        unsafe { CStr::from_ptr(self.me.nspace.as_ptr()) }
            .to_string_lossy()
            .into_owned()
    }

    /// This process in its job, from 0.
    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    /// How many processes the job has (`pmix.job.size`).
    ///
    /// # Errors
    ///
    /// The library's; [`PmixError::UNEXPECTED`] if the server's answer is no number.
    pub fn job_size(&self) -> Result<u32> {
        self.number("pmix.job.size")
    }

    /// How many of them are on this node (`pmix.local.size`).
    ///
    /// # Errors
    ///
    /// As [`Client::job_size`].
    pub fn local_size(&self) -> Result<u32> {
        self.number("pmix.local.size")
    }

    /// Puts a string under `key`. Once it is committed, all processes of the job can get it.
    ///
    /// # Errors
    ///
    /// The library's; [`PmixError::REFUSED`] if the key is too long, or if key or value have a NUL inside.
    pub fn put(&self, key: &str, value: &str) -> Result<()> {
        let key = key_of("PMIx_Put", key)?;
        let value = CString::new(value)
            .map_err(|_| PmixError::refused("PMIx_Put", "the value has a NUL inside"))?;
        let mut value = pmix_value_t {
            type_: sys::PMIX_STRING,
            data: pmix_value_data {
                string: value.as_ptr().cast_mut(),
            },
        };
        // SAFETY: key and value end with a NUL, live until the call is over, and the library copies them.
        let status =
            unsafe { (self.library.functions().put)(sys::PMIX_GLOBAL, key.as_ptr(), &mut value) };
        self.library.check("PMIx_Put", status)
    }

    /// Sends all strings that were put to the server.
    ///
    /// # Errors
    ///
    /// The library's.
    pub fn commit(&self) -> Result<()> {
        // SAFETY: the library stays initialised as long as this client exists.
        let status = unsafe { (self.library.functions().commit)() };
        self.library.check("PMIx_Commit", status)
    }

    /// Waits until all processes of the job have made this call, and collects what they have committed. The server is
    /// asked to give up after `seconds`.
    ///
    /// # Errors
    ///
    /// The library's; see [`PmixError::is_timeout`] and [`PmixError::is_partial`].
    pub fn fence(&self, seconds: u32) -> Result<()> {
        let info = [
            info(
                "pmix.collect",
                sys::PMIX_BOOL,
                pmix_value_data { flag: true },
            ),
            limit(seconds),
        ];
        // SAFETY: no process is named, which means all processes; the attributes live until the call is over.
        let status =
            unsafe { (self.library.functions().fence)(ptr::null(), 0, info.as_ptr(), info.len()) };
        self.library.check("PMIx_Fence", status)
    }

    /// The string that `rank` has put under `key`. The server is asked to give up after `seconds`.
    ///
    /// # Errors
    ///
    /// The library's; [`PmixError::REFUSED`] if the key is too long, or has a NUL inside; [`PmixError::UNEXPECTED`] if
    /// the value is no string of UTF-8.
    pub fn get(&self, rank: u32, key: &str, seconds: u32) -> Result<String> {
        let found = self.value(rank, key, &[limit(seconds)])?;
        // SAFETY: a value of this type holds a string. If the pointer is not null, the library has ended the string
        // with a NUL.
        let text = (found.type_() == sys::PMIX_STRING).then(|| unsafe { found.data().string });
        match text {
            Some(text) if !text.is_null() => {
                // SAFETY: as above; `found` keeps the string until this function returns.
                let text = unsafe { CStr::from_ptr(text) }.to_str();
                let owned = text.map(str::to_owned);
                owned.map_err(|_| PmixError::unexpected("PMIx_Get", "the value is not UTF-8"))
            }
            _ => Err(PmixError::unexpected("PMIx_Get", "the value is no string")),
        }
    }

    fn number(&self, key: &str) -> Result<u32> {
        let found = self.value(sys::PMIX_RANK_WILDCARD, key, &[])?;
        if found.type_() != sys::PMIX_UINT32 {
            return Err(PmixError::unexpected("PMIx_Get", "the value is no uint32"));
        }
        // SAFETY: a value of this type holds this number.
        Ok(unsafe { found.data().uint32 })
    }

    fn value(&self, rank: pmix_rank_t, key: &str, info: &[pmix_info_t]) -> Result<Found<'_>> {
        let key = key_of("PMIx_Get", key)?;
        let whose = pmix_proc_t { rank, ..self.me };
        let mut value = ptr::null_mut();
        // SAFETY: everything that the pointers name lives until the call is over; `value` is writable.
        let status = unsafe {
            (self.library.functions().get)(
                &whose,
                key.as_ptr(),
                info.as_ptr(),
                info.len(),
                &mut value,
            )
        };
        self.library.check("PMIx_Get", status)?;
        if value.is_null() {
            return Err(PmixError::unexpected("PMIx_Get", "there is no value"));
        }
        Ok(Found {
            library: &self.library,
            value,
        })
    }

    /// Ends this client's use of the connection. The library closes the connection after its last client in this
    /// process.
    ///
    /// # Errors
    ///
    /// The library's.
    pub fn finalize(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finalized, true) {
            return Ok(());
        }
        // SAFETY: `finalized` was not set, so this is the one call that belongs to this client's `PMIx_Init`.
        let status = unsafe { (self.library.functions().finalize)(ptr::null(), 0) };
        self.library.check("PMIx_Finalize", status)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // An error cannot be returned here. `finalize` returns it.
        let _ = self.end();
    }
}

/// A value that the library allocated.
struct Found<'a> {
    library: &'a Library,
    value: *mut pmix_value_t,
}

impl Found<'_> {
    fn type_(&self) -> u16 {
        // SAFETY: the pointer is not null, as was checked when this was made. The library keeps the value until it is
        // freed, which is when this is dropped.
        unsafe { (*self.value).type_ }
    }

    fn data(&self) -> pmix_value_data {
        // SAFETY: as above; libraries from version 3 on have values of this size.
        unsafe { (*self.value).data }
    }
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        if let Some(value_free) = self.library.functions().value_free {
            // SAFETY: this is one value that the library allocated, and it is not used again.
            unsafe { value_free(self.value, 1) };
            return;
        }
        match self.type_() {
            sys::PMIX_STRING => {
                // SAFETY: in these versions, value and string are memory of the C library: the header frees them in the
                // same way.
                unsafe {
                    free((*self.value).data.string.cast());
                    free(self.value.cast());
                }
            }
            sys::PMIX_UINT32 => {
                // SAFETY: as above; the value points to nothing.
                unsafe { free(self.value.cast()) }
            }
            // Only the library knows what a value of another type points to. Nothing here asks for such a value.
            _ => {}
        }
    }
}

fn key_of(call: &'static str, key: &str) -> Result<CString> {
    if key.len() > PMIX_MAX_KEYLEN {
        return Err(PmixError::refused(call, "the key is too long"));
    }
    CString::new(key).map_err(|_| PmixError::refused(call, "the key has a NUL inside"))
}

fn limit(seconds: u32) -> pmix_info_t {
    let integer = i32::try_from(seconds).unwrap_or(i32::MAX);
    info("pmix.timeout", sys::PMIX_INT, pmix_value_data { integer })
}

/// An attribute. All callers are in this file, and their names are short enough.
fn info(name: &str, type_: u16, data: pmix_value_data) -> pmix_info_t {
    let mut key = [0; PMIX_MAX_KEYLEN + 1];
    for (to, from) in key.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    // All bytes of the union that `data` leaves out are zero, as in a union that C initialises.
    let mut whole = pmix_value_data {
        words: [ptr::null_mut(); 3],
    };
    match type_ {
        // SAFETY: the caller has set the field that belongs to the type.
        sys::PMIX_BOOL => whole.flag = unsafe { data.flag },
        // SAFETY: as above.
        _ => whole.integer = unsafe { data.integer },
    }
    pmix_info_t {
        key,
        flags: 0,
        value: pmix_value_t { type_, data: whole },
    }
}
