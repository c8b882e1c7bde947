//! The types, numbers and signatures of HIP are those of AMD's headers, as the crate `cubecl-hip-sys` has them.
//!
//! Names of types are compared as text without paths, so each type here has the header's name. The contents of a
//! structure are compared by size, alignment and offsets.
//!
//! The crate `hip-sys` 0.1.2 (over `hip-runtime-sys` 0.1.2) is of HIP 5.4, and must not be used with ROCm 6 and 7. In
//! what is used here, the releases differ so:
//!
//! | name | HIP 5.4 (`hip-sys`) | HIP 6 and 7 |
//! |---|---|---|
//! | `hipMemoryTypeDevice` | 1 | 2 |
//! | `hipIpcMemLazyEnablePeerAccess` | 0 | 1, and the one value that is allowed |
//! | `hipGetDevicePropertiesR0600` | none; `hipGetDeviceProperties` fills another layout | the layout here |
//! | `hipDeviceMallocUncached` | none | 3 |
//! | `hipMemcpyHtoDAsync` | the source is `*mut` | `*mut` in 6, `*const` in 7 |
//! | `hipMemPoolProps` | 64 reserved bytes | the first 8 of them are `maxSize` |
//! | `hipEventRecordWithFlags`, `hipEventRecordExternal` | none | from 6.4 on |
//! | `hipMemAllocationTypeUncached` | none | from 7.1 on |

use std::any::type_name;
use std::mem::{align_of, offset_of, size_of};

use cubecl_hip_sys as header;
use tidegate_ffi::hip::sys;
use tidegate_ffi::{hip_functions, hip_numbers, hiprtc_functions};

/// The name of a type, without the paths of its parts. A structure whose fields are anonymous there has a name here.
fn plain<T: ?Sized>() -> String {
    let is_name = |byte: char| byte.is_alphanumeric() || byte == '_' || byte == ':';
    let name = type_name::<T>();
    let mut plain = String::new();
    let mut rest = name;
    while !rest.is_empty() {
        let end = rest.find(|byte| !is_name(byte)).unwrap_or(rest.len());
        let (word, more) = rest.split_at(end);
        plain += word
            .rsplit("::")
            .next()
            .expect("there is one part at least");
        let end = more.find(is_name).unwrap_or(more.len());
        let (between, more) = more.split_at(end);
        plain += between;
        rest = more;
    }
    plain
}

/// The types of a function: its arguments, and then its result.
trait Signature {
    fn types() -> Vec<String>;
}

macro_rules! signature {
    ($($arg:ident)*) => {
        impl<Out, $($arg),*> Signature for unsafe extern "C" fn($($arg),*) -> Out {
            fn types() -> Vec<String> {
                vec![$(plain::<$arg>(),)* plain::<Out>()]
            }
        }
    };
}

signature!(A);
signature!(A B);
signature!(A B C);
signature!(A B C D);
signature!(A B C D E);
signature!(A B C D E F);
signature!(A B C D E F G H I J K);

fn types<F: Signature>(_: F) -> Vec<String> {
    F::types()
}

#[test]
fn signatures_are_those_of_the_header() {
    use std::ffi::*;
    use sys::*;
    macro_rules! any {
        ($arg:ident) => {
            _
        };
    }
    let mut count = 0;
    macro_rules! compare {
        (
            texts { $($text:ident = $text_symbol:ident($code:ident: $code_type:ty);)* }
            $($group:ident { $($name:ident = $symbol:ident($($arg:ident: $type:ty),*);)* })*
        ) => {
            $(
                let theirs = types(header::$text_symbol as unsafe extern "C" fn(_) -> _);
                let ours = <unsafe extern "C" fn($code_type) -> *const c_char>::types();
                assert_eq!(ours, theirs, stringify!($text_symbol));
            )*
            $($(
                let theirs = types(header::$symbol as unsafe extern "C" fn($(any!($arg)),*) -> _);
                let ours = <unsafe extern "C" fn($($type),*) -> hipError_t>::types();
                assert_eq!(ours, theirs, stringify!($symbol));
                count += 1;
            )*)*
        };
    }
    hip_functions!(compare);
    macro_rules! compare_rtc {
        ($($name:ident = $symbol:ident($($arg:ident: $type:ty),*);)*) => {
            $(
                let theirs = types(header::$symbol as unsafe extern "C" fn($(any!($arg)),*) -> _);
                let ours = <unsafe extern "C" fn($($type),*) -> hiprtcResult>::types();
                assert_eq!(ours, theirs, stringify!($symbol));
            )*
        };
    }
    hiprtc_functions!(compare_rtc);
    assert!(count > 60, "{count}");
    // What the comparison sees: a path is left out, and a pointer is not.
    let theirs =
        types(header::hipStreamGetCaptureInfo_v2 as unsafe extern "C" fn(_, _, _, _, _, _) -> _);
    assert_eq!(theirs[0], "*mut ihipStream_t");
    assert_eq!(theirs[4], "*mut *const *mut hipGraphNode");
}

#[test]
fn numbers_are_those_of_the_header() {
    // The header's crate puts the name of the enumeration in front.
    let bindings = include_numbers();
    let mut count = 0;
    macro_rules! compare {
        ($($type:ident { $($name:ident = $value:literal;)* })*) => {
            $($(
                let theirs = bindings.iter().find(|(name, _)| *name == stringify!($name));
                assert_eq!(theirs, Some(&(stringify!($name), sys::$name)), "{}", stringify!($type));
                count += 1;
            )*)*
        };
    }
    hip_numbers!(compare);
    assert_eq!(count, bindings.len());
}

/// The header's numbers.
fn include_numbers() -> Vec<(&'static str, u32)> {
    macro_rules! list {
        ($($name:ident = $theirs:ident;)*) => {
            vec![$((stringify!($name), header::$theirs)),*]
        };
    }
    list! {
        hipSuccess = hipError_t_hipSuccess;
        hipErrorInvalidValue = hipError_t_hipErrorInvalidValue;
        hipErrorOutOfMemory = hipError_t_hipErrorOutOfMemory;
        hipErrorNoDevice = hipError_t_hipErrorNoDevice;
        hipErrorInvalidDevice = hipError_t_hipErrorInvalidDevice;
        hipErrorECCNotCorrectable = hipError_t_hipErrorECCNotCorrectable;
        hipErrorNotReady = hipError_t_hipErrorNotReady;
        hipErrorIllegalAddress = hipError_t_hipErrorIllegalAddress;
        hipErrorLaunchTimeOut = hipError_t_hipErrorLaunchTimeOut;
        hipErrorPeerAccessAlreadyEnabled = hipError_t_hipErrorPeerAccessAlreadyEnabled;
        hipErrorContextIsDestroyed = hipError_t_hipErrorContextIsDestroyed;
        hipErrorAssert = hipError_t_hipErrorAssert;
        hipErrorHostMemoryAlreadyRegistered = hipError_t_hipErrorHostMemoryAlreadyRegistered;
        hipErrorLaunchFailure = hipError_t_hipErrorLaunchFailure;
        hipErrorNotSupported = hipError_t_hipErrorNotSupported;
        hipErrorStreamCaptureUnsupported = hipError_t_hipErrorStreamCaptureUnsupported;
        hipErrorStreamCaptureWrongThread = hipError_t_hipErrorStreamCaptureWrongThread;
        HIPRTC_SUCCESS = hiprtcResult_HIPRTC_SUCCESS;
        hipDevP2PAttrNativeAtomicSupported = hipDeviceP2PAttr_hipDevP2PAttrNativeAtomicSupported;
        HIP_POINTER_ATTRIBUTE_MEMORY_TYPE = hipPointer_attribute_HIP_POINTER_ATTRIBUTE_MEMORY_TYPE;
        HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = hipPointer_attribute_HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        hipMemoryTypeDevice = hipMemoryType_hipMemoryTypeDevice;
        hipMemAllocationTypePinned = hipMemAllocationType_hipMemAllocationTypePinned;
        hipMemAllocationTypeUncached = hipMemAllocationType_hipMemAllocationTypeUncached;
        hipMemHandleTypeNone = hipMemAllocationHandleType_hipMemHandleTypeNone;
        hipMemHandleTypePosixFileDescriptor = hipMemAllocationHandleType_hipMemHandleTypePosixFileDescriptor;
        hipMemAllocationGranularityRecommended = hipMemAllocationGranularity_flags_hipMemAllocationGranularityRecommended;
        hipMemLocationTypeDevice = hipMemLocationType_hipMemLocationTypeDevice;
        hipMemAccessFlagsProtReadWrite = hipMemAccessFlags_hipMemAccessFlagsProtReadWrite;
        hipMemPoolAttrReleaseThreshold = hipMemPoolAttr_hipMemPoolAttrReleaseThreshold;
        hipStreamCaptureModeRelaxed = hipStreamCaptureMode_hipStreamCaptureModeRelaxed;
        hipStreamCaptureStatusActive = hipStreamCaptureStatus_hipStreamCaptureStatusActive;
        hipEventDefault = hipEventDefault;
        hipEventDisableTiming = hipEventDisableTiming;
        hipEventRecordExternal = hipEventRecordExternal;
        hipHostMallocPortable = hipHostMallocPortable;
        hipHostMallocMapped = hipHostMallocMapped;
        hipHostMallocCoherent = hipHostMallocCoherent;
        hipHostRegisterMapped = hipHostRegisterMapped;
        hipHostRegisterIoMemory = hipHostRegisterIoMemory;
        hipDeviceMallocFinegrained = hipDeviceMallocFinegrained;
        hipDeviceMallocUncached = hipDeviceMallocUncached;
        hipIpcMemLazyEnablePeerAccess = hipIpcMemLazyEnablePeerAccess;
    }
}

#[test]
fn structures_are_those_of_the_header() {
    macro_rules! same {
        ($name:ident) => {
            assert_eq!(size_of::<sys::$name>(), size_of::<header::$name>());
            assert_eq!(align_of::<sys::$name>(), align_of::<header::$name>());
        };
        ($name:ident { $($field:ident)* }) => {
            same!($name);
            $(assert_eq!(
                offset_of!(sys::$name, $field),
                offset_of!(header::$name, $field),
                concat!(stringify!($name), ".", stringify!($field))
            );)*
        };
    }
    same!(hipUUID_t { bytes });
    same!(hipIpcMemHandle_st { reserved });
    same!(hipDeviceProp_tR0600 {
        name uuid warpSize multiProcessorCount pciBusID pciDeviceID pciDomainID gcnArchName hdpMemFlushCntl isLargeBar
    });
    same!(hipMemLocation { type_ id });
    same!(hipMemAccessDesc { location flags });
    same!(hipMemAllocationProp { type_ location win32HandleMetaData allocFlags });
    assert_eq!(
        offset_of!(sys::hipMemAllocationProp, requestedHandleTypes),
        offset_of!(header::hipMemAllocationProp, __bindgen_anon_1)
    );
    type TheirFlags = header::hipMemAllocationProp__bindgen_ty_2;
    assert_eq!(
        size_of::<sys::hipMemAllocationFlags>(),
        size_of::<TheirFlags>()
    );
    assert_eq!(
        offset_of!(sys::hipMemAllocationFlags, usage),
        offset_of!(TheirFlags, usage)
    );
    same!(hipMemPoolProps { allocType handleTypes location win32SecurityAttributes maxSize reserved });
}
