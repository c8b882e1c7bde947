//! The layouts that a C compiler gives the structures in the headers of libfabric 1.17, on 64-bit Linux. If a binding
//! differs, the tests do not compile.

use std::mem::{align_of, offset_of, size_of};

use super::*;

macro_rules! layout {
    ($($name:ident: $size:literal, $align:literal { $($field:ident @ $at:literal),* $(,)? })*) => {$(
        const _: () = {
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == $align);
            $(assert!(offset_of!($name, $field) == $at);)*
        };
    )*};
}

layout! {
    fi_ioc: 16, 8 {
        addr @ 0, count @ 8
    }
    fi_tx_attr: 80, 8 {
        caps @ 0, mode @ 8, op_flags @ 16, msg_order @ 24, comp_order @ 32, inject_size @ 40,
        size @ 48, iov_limit @ 56, rma_iov_limit @ 64, tclass @ 72
    }
    fi_rx_attr: 64, 8 {
        caps @ 0, mode @ 8, op_flags @ 16, msg_order @ 24, comp_order @ 32,
        total_buffered_recv @ 40, size @ 48, iov_limit @ 56
    }
    fi_ep_attr: 96, 8 {
        type_ @ 0, protocol @ 4, protocol_version @ 8, max_msg_size @ 16, msg_prefix_size @ 24,
        max_order_raw_size @ 32, max_order_war_size @ 40, max_order_waw_size @ 48,
        mem_tag_format @ 56, tx_ctx_cnt @ 64, rx_ctx_cnt @ 72, auth_key_size @ 80, auth_key @ 88
    }
    fi_domain_attr: 192, 8 {
        domain @ 0, name @ 8, threading @ 16, control_progress @ 20, data_progress @ 24,
        resource_mgmt @ 28, av_type @ 32, mr_mode @ 36, mr_key_size @ 40, cq_data_size @ 48,
        cq_cnt @ 56, ep_cnt @ 64, tx_ctx_cnt @ 72, rx_ctx_cnt @ 80, max_ep_tx_ctx @ 88,
        max_ep_rx_ctx @ 96, max_ep_stx_ctx @ 104, max_ep_srx_ctx @ 112, cntr_cnt @ 120,
        mr_iov_limit @ 128, caps @ 136, mode @ 144, auth_key @ 152, auth_key_size @ 160,
        max_err_data @ 168, mr_cnt @ 176, tclass @ 184
    }
    fi_fabric_attr: 32, 8 {
        fabric @ 0, name @ 8, prov_name @ 16, prov_version @ 24, api_version @ 28
    }
    fi_info: 120, 8 {
        next @ 0, caps @ 8, mode @ 16, addr_format @ 24, src_addrlen @ 32, dest_addrlen @ 40,
        src_addr @ 48, dest_addr @ 56, handle @ 64, tx_attr @ 72, rx_attr @ 80, ep_attr @ 88,
        domain_attr @ 96, fabric_attr @ 104, nic @ 112
    }
    fi_ops: 56, 8 {
        size @ 0, close @ 8, bind @ 16, control @ 24, ops_open @ 32, tostr @ 40, ops_set @ 48
    }
    fid: 24, 8 {
        fclass @ 0, context @ 8, ops @ 16
    }
    fi_ops_fabric: 56, 8 {
        size @ 0, domain @ 8, passive_ep @ 16, eq_open @ 24, wait_open @ 32, trywait @ 40,
        domain2 @ 48
    }
    fid_fabric: 40, 8 {
        fid @ 0, ops @ 24, api_version @ 32
    }
    fi_mr_raw_attr: 32, 8 {
        flags @ 0, base_addr @ 8, raw_key @ 16, key_size @ 24
    }
    fi_mr_map_raw: 40, 8 {
        flags @ 0, base_addr @ 8, raw_key @ 16, key_size @ 24, key @ 32
    }
    fi_context2: 64, 8 {
        internal @ 0
    }
    fi_cq_data_entry: 40, 8 {
        op_context @ 0, flags @ 8, len @ 16, buf @ 24, data @ 32
    }
    fi_cq_err_entry: 80, 8 {
        op_context @ 0, flags @ 8, len @ 16, buf @ 24, data @ 32, tag @ 40, olen @ 48, err @ 56,
        prov_errno @ 60, err_data @ 64, err_data_size @ 72
    }
    fi_cq_attr: 40, 8 {
        size @ 0, flags @ 8, format @ 16, wait_obj @ 20, signaling_vector @ 24, wait_cond @ 28,
        wait_set @ 32
    }
    fi_ops_cq: 64, 8 {
        size @ 0, read @ 8, readfrom @ 16, readerr @ 24, sread @ 32, sreadfrom @ 40, signal @ 48,
        strerror @ 56
    }
    fid_cq: 32, 8 {
        fid @ 0, ops @ 24
    }
    fi_cntr_attr: 24, 8 {
        events @ 0, wait_obj @ 4, wait_set @ 8, flags @ 16
    }
    fi_ops_cntr: 64, 8 {
        size @ 0, read @ 8, readerr @ 16, add @ 24, set @ 32, wait @ 40, adderr @ 48, seterr @ 56
    }
    fid_cntr: 32, 8 {
        fid @ 0, ops @ 24
    }
    fi_av_attr: 48, 8 {
        type_ @ 0, rx_ctx_bits @ 4, count @ 8, ep_per_node @ 16, name @ 24, map_addr @ 32,
        flags @ 40
    }
    fi_ops_av: 64, 8 {
        size @ 0, insert @ 8, insertsvc @ 16, insertsym @ 24, remove @ 32, lookup @ 40,
        straddr @ 48, av_set @ 56
    }
    fid_av: 32, 8 {
        fid @ 0, ops @ 24
    }
    fid_mr: 40, 8 {
        fid @ 0, mem_desc @ 24, key @ 32
    }
    fi_mr_attr: 80, 8 {
        mr_iov @ 0, iov_count @ 8, access @ 16, offset @ 24, requested_key @ 32, context @ 40,
        auth_key_size @ 48, auth_key @ 56, iface @ 64, device @ 72
    }
    fi_ops_domain: 96, 8 {
        size @ 0, av_open @ 8, cq_open @ 16, endpoint @ 24, scalable_ep @ 32, cntr_open @ 40,
        poll_open @ 48, stx_ctx @ 56, srx_ctx @ 64, query_atomic @ 72, query_collective @ 80,
        endpoint2 @ 88
    }
    fi_ops_mr: 32, 8 {
        size @ 0, reg @ 8, regv @ 16, regattr @ 24
    }
    fid_domain: 40, 8 {
        fid @ 0, ops @ 24, mr @ 32
    }
    fid_ep: 80, 8 {
        fid @ 0, ops @ 24, cm @ 32, msg @ 40, rma @ 48, tagged @ 56, atomic @ 64, collective @ 72
    }
    fi_ops_cm: 80, 8 {
        size @ 0, setname @ 8, getname @ 16, getpeer @ 24, connect @ 32, listen @ 40, accept @ 48,
        reject @ 56, shutdown @ 64, join @ 72
    }
    fi_rma_iov: 24, 8 {
        addr @ 0, len @ 8, key @ 16
    }
    fi_rma_ioc: 24, 8 {
        addr @ 0, count @ 8, key @ 16
    }
    fi_msg_rma: 64, 8 {
        msg_iov @ 0, desc @ 8, iov_count @ 16, addr @ 24, rma_iov @ 32, rma_iov_count @ 40,
        context @ 48, data @ 56
    }
    fi_ops_rma: 80, 8 {
        size @ 0, read @ 8, readv @ 16, readmsg @ 24, write @ 32, writev @ 40, writemsg @ 48,
        inject @ 56, writedata @ 64, injectdata @ 72
    }
    fi_msg_atomic: 72, 8 {
        msg_iov @ 0, desc @ 8, iov_count @ 16, addr @ 24, rma_iov @ 32, rma_iov_count @ 40,
        datatype @ 48, op @ 52, context @ 56, data @ 64
    }
    fi_ops_atomic: 112, 8 {
        size @ 0, write @ 8, writev @ 16, writemsg @ 24, inject @ 32, readwrite @ 40,
        readwritev @ 48, readwritemsg @ 56, compwrite @ 64, compwritev @ 72, compwritemsg @ 80,
        writevalid @ 88, readwritevalid @ 96, compwritevalid @ 104
    }
    fi_op_rma: 80, 8 {
        ep @ 0, msg @ 8, flags @ 72
    }
    fi_op_atomic: 88, 8 {
        ep @ 0, msg @ 8, flags @ 80
    }
    fi_op_cntr: 16, 8 {
        cntr @ 0, value @ 8
    }
    fi_deferred_work: 104, 8 {
        context @ 0, threshold @ 64, triggering_cntr @ 72, completion_cntr @ 80, op_type @ 88,
        op @ 96
    }
}
