//! What nobody here calls.

use crate::codes;

macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "it is the driver's")]
        extern "C" fn $name() -> i32 {
            codes::NOT_SUPPORTED
        }
    )*};
}

unsupported! {
    cuCtxGetExecAffinity
    cuDeviceGetDefaultMemPool
    cuGraphClone
    cuIpcCloseMemHandle
    cuIpcGetMemHandle
    cuIpcOpenMemHandle_v2
    cuStreamWaitValue32_v2
    cuStreamWaitValue64_v2
    cuStreamWriteValue32_v2
    cuStreamWriteValue64_v2
}
