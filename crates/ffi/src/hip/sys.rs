//! Types and numbers of HIP 6 and 7, under the names of AMD's headers.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, reason = "AMD documents them")]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};

macro_rules! opaque {
    ($($handle:ident = $name:ident;)*) => {$(
        /// An object of the runtime.
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
        pub type $handle = *mut $name;
    )*};
}

opaque! {
    hipStream_t = ihipStream_t;
    hipEvent_t = ihipEvent_t;
    hipGraph_t = ihipGraph;
    hipGraphNode_t = hipGraphNode;
    hipGraphExec_t = hipGraphExec;
    hipModule_t = ihipModule_t;
    hipFunction_t = ihipModuleSymbol_t;
    hipMemPool_t = ihipMemPoolHandle_t;
    hipMemGenericAllocationHandle_t = ihipMemGenericAllocationHandle;
    hiprtcProgram = _hiprtcProgram;
}

pub type hipError_t = c_uint;
pub type hiprtcResult = c_uint;
pub type hipDeviceptr_t = *mut c_void;
pub type hipDeviceP2PAttr = c_uint;
pub type hipPointer_attribute = c_uint;
pub type hipMemAllocationType = c_uint;
pub type hipMemAllocationHandleType = c_uint;
pub type hipMemAllocationGranularity_flags = c_uint;
pub type hipMemLocationType = c_uint;
pub type hipMemAccessFlags = c_uint;
pub type hipMemPoolAttr = c_uint;
pub type hipStreamCaptureMode = c_uint;
pub type hipStreamCaptureStatus = c_uint;
pub type hipHostFn_t = Option<unsafe extern "C" fn(*mut c_void)>;
pub type hipUUID = hipUUID_t;
pub type hipIpcMemHandle_t = hipIpcMemHandle_st;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipUUID_t {
    pub bytes: [c_char; 16],
}

/// A name of memory, for other processes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipIpcMemHandle_st {
    pub reserved: [c_char; 64],
}

/// The properties of a device. Only the fields that are used have names. (The function that fills it has the suffix
/// R0600, so a later layout gets another name.)
#[repr(C)]
pub struct hipDeviceProp_tR0600 {
    pub name: [c_char; 256],
    pub uuid: hipUUID,
    _1: [c_int; 9],
    pub warpSize: c_int,
    _2: [c_int; 19],
    pub multiProcessorCount: c_int,
    _3: [c_int; 48],
    pub pciBusID: c_int,
    pub pciDeviceID: c_int,
    pub pciDomainID: c_int,
    _4: [c_int; 141],
    /// The architecture, with features: `gfx942:sramecc+:xnack-`.
    pub gcnArchName: [c_char; 256],
    _5: [c_int; 4],
    /// The register by which the host flushes its stores to the device's memory.
    pub hdpMemFlushCntl: *mut c_uint,
    _6: [c_int; 6],
    /// Whether the host reaches all of the device's memory.
    pub isLargeBar: c_int,
    _7: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipMemLocation {
    pub type_: hipMemLocationType,
    pub id: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipMemAccessDesc {
    pub location: hipMemLocation,
    pub flags: hipMemAccessFlags,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipMemAllocationFlags {
    pub compressionType: c_uchar,
    pub gpuDirectRDMACapable: c_uchar,
    pub usage: c_ushort,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipMemAllocationProp {
    pub type_: hipMemAllocationType,
    pub requestedHandleTypes: hipMemAllocationHandleType,
    pub location: hipMemLocation,
    pub win32HandleMetaData: *mut c_void,
    pub allocFlags: hipMemAllocationFlags,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipMemPoolProps {
    pub allocType: hipMemAllocationType,
    pub handleTypes: hipMemAllocationHandleType,
    pub location: hipMemLocation,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub reserved: [c_uchar; 56],
}

/// The numbers that are used. The test compares each with the header's, so the list is a macro.
#[doc(hidden)]
#[macro_export]
macro_rules! hip_numbers {
    ($each:ident) => {
        $each! {
            hipError_t {
                hipSuccess = 0;
                hipErrorInvalidValue = 1;
                hipErrorOutOfMemory = 2;
                hipErrorNoDevice = 100;
                hipErrorInvalidDevice = 101;
                hipErrorECCNotCorrectable = 214;
                hipErrorNotReady = 600;
                hipErrorIllegalAddress = 700;
                hipErrorLaunchTimeOut = 702;
                hipErrorPeerAccessAlreadyEnabled = 704;
                hipErrorContextIsDestroyed = 709;
                hipErrorAssert = 710;
                hipErrorHostMemoryAlreadyRegistered = 712;
                hipErrorLaunchFailure = 719;
                hipErrorNotSupported = 801;
                hipErrorStreamCaptureUnsupported = 900;
                hipErrorStreamCaptureWrongThread = 908;
            }
            hipDeviceP2PAttr {
                hipDevP2PAttrNativeAtomicSupported = 2;
            }
            hipPointer_attribute {
                HIP_POINTER_ATTRIBUTE_MEMORY_TYPE = 2;
                HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9;
            }
            hipMemoryType {
                hipMemoryTypeDevice = 2;
            }
            hipMemAllocationType {
                hipMemAllocationTypePinned = 1;
                hipMemAllocationTypeUncached = 0x4000_0000;
            }
            hipMemAllocationHandleType {
                hipMemHandleTypeNone = 0;
                hipMemHandleTypePosixFileDescriptor = 1;
            }
            hipMemAllocationGranularity_flags {
                hipMemAllocationGranularityRecommended = 1;
            }
            hiprtcResult {
                HIPRTC_SUCCESS = 0;
            }
            hipMemLocationType {
                hipMemLocationTypeDevice = 1;
            }
            hipMemAccessFlags {
                hipMemAccessFlagsProtReadWrite = 3;
            }
            hipMemPoolAttr {
                hipMemPoolAttrReleaseThreshold = 4;
            }
            hipStreamCaptureMode {
                hipStreamCaptureModeRelaxed = 2;
            }
            hipStreamCaptureStatus {
                hipStreamCaptureStatusActive = 1;
            }
            plain {
                hipEventDefault = 0;
                hipEventDisableTiming = 2;
                hipEventRecordExternal = 1;
                hipHostMallocPortable = 1;
                hipHostMallocMapped = 2;
                hipHostMallocCoherent = 0x4000_0000;
                hipHostRegisterMapped = 2;
                hipHostRegisterIoMemory = 4;
                hipDeviceMallocFinegrained = 1;
                hipDeviceMallocUncached = 3;
                hipIpcMemLazyEnablePeerAccess = 1;
            }
        }
    };
}

macro_rules! constants {
    ($($type:ident { $($name:ident = $value:literal;)* })*) => {
        $($(pub const $name: u32 = $value;)*)*
    };
}
hip_numbers!(constants);
