//! The twins of what must not compile (see `compile_fail.rs`): each differs from its misuse by the fix alone. All of
//! them compile, without a word that is unsafe, and run.
#![allow(unreachable_pub, reason = "the twins are whole programs")]
#![allow(unused_must_use, reason = "the programs end with an epoch")]

macro_rules! twins {
    ($($name:ident)*) => {
        #[path = "../compile_pass"]
        mod programs {
            mod derives_of_any_names;
            mod fields_that_differ;
            mod plain_errors;
            mod refused_at_run_time;
            $(pub(super) mod $name;)*
        }
        $(#[test]
        fn $name() {
            programs::$name::main().unwrap();
        })*
    };
}

twins! {
    carry_generic_over_the_device
    row01_accumulate_outside_an_epoch
    row01_get_outside_an_epoch
    row01_put_after_complete
    row01_put_by_an_atomic_window
    row01_put_outside_an_epoch
    row02_host_keeps_memory_while_exposed
    row02_host_keeps_slots_while_exposed
    row02_host_read_of_a_posted_inbox
    row02_host_read_of_an_exposure
    row02_host_write_while_exposed
    row02_kernel_view_made_before_the_post
    row02_kernel_while_exposed
    row03_host_indexes_a_region_of_a_stream
    row03_host_reads_after_the_wait_on_the_stream
    row03_host_reads_what_a_kernel_would_see
    row03_host_writes_a_region_of_a_stream
    row04_complete_on_another_stream
    row04_count_of_another_stream
    row04_inbox_viewed_on_another_stream
    row04_kernel_on_another_stream
    row04_put_from_a_region_of_another_stream
    row04_put_from_a_region_of_the_host
    row04_reduced_on_another_stream
    row04_replay_on_another_stream
    row04_to_the_host_by_another_stream
    row04_wait_on_another_stream
    row05_count_written_before_complete
    row05_destination_got_twice
    row05_destination_is_a_source
    row05_destination_read_before_complete
    row05_layout_dropped_before_complete
    row05_source_handed_over_before_complete
    row05_source_part_written_before_complete
    row05_source_reduced_before_complete
    row05_source_to_the_host_before_complete
    row05_source_written_before_complete
    row06_inbox_memory_twice
    row06_one_part_twice
    row06_shared_and_exclusive_view
    row06_two_exclusive_views
    row07_completed_twice
    row07_exchanged_twice
    row07_exposed_whole_twice
    row07_posted_twice
    row07_region_in_two_places
    row07_started_twice
    row07_token_copied
    row07_waited_twice
    row08_inbox_of_an_open_exposure
    row08_outbox_of_an_open_epoch
    row08_source_of_an_open_epoch
    row09_inbox_swapped_while_it_is_read
    row09_kernel_that_wants_the_region_itself
    row09_memory_replaced_by_a_kernel
    row09_source_swapped_in_an_open_epoch
    row10_inbox_dropped_while_exposed
    row10_outbox_dropped_in_an_open_epoch
    row10_source_dropped_in_an_open_epoch
    row10_source_out_of_scope_in_an_open_epoch
    row11_inbound_slot_as_a_destination
    row11_number_for_a_slot
    row11_outbound_slot_is_read
    row11_slot_copied
    row11_slot_declared_behind_the_opening
    row11_slot_of_other_elements
    row11_slot_used_twice
    row11_window_opened_twice
    row12_another_region_given_back
    row12_captured_stream_by_a_reference
    row12_captured_stream_itself
    row12_lent_region_kept
    row12_outside_inbox_in_a_capture
    row12_outside_region_in_a_capture
    row12_region_lent_on_the_second_stream
    row13_future_on_another_thread
    row13_inbox_outlives_its_stream
    row13_region_of_the_caller_on_a_stream_of_the_callee
    row13_region_of_the_last_turn
    row13_region_outlives_its_stream
    row13_region_returned
    row13_stream_borrowed_by_a_spawned_task
    row13_stream_kept_in_a_static
    row13_stream_shared_by_threads
    row14_carried_on_another_kind_of_device
    row14_handed_over_to_another_kind_of_device
    row14_kernel_on_a_region_of_another_kind_of_device
    row14_layout_of_another_kind_of_device
    row14_region_on_a_stream_of_another_kind_of_device
    row15_accumulate_of_structs
    row15_array_of_4_gib
    row15_array_of_nothing
    row15_bool
    row15_char
    row15_enum
    row15_field_bool
    row15_field_pointer
    row15_generic
    row15_greatest_alignment
    row15_interior_mutability
    row15_no_repr
    row15_not_copy
    row15_nothing_inside
    row15_option
    row15_packed
    row15_padding_at_the_end
    row15_padding_by_alignment
    row15_padding_inside
    row15_pointer
    row15_reference
    row15_reference_in_an_array
    row15_string
    row15_tuple
    row15_union
    row15_unit
    row15_usize
    row15_window_of_bool
    row16_fetched_read_by_a_kernel_before_complete
    row16_fetched_read_by_the_host_before_complete
    row16_fetched_slice_read_before_complete
    row16_got_read_before_complete
    row16_operand_is_the_result
    row16_swapped_into_a_shared_slice
    row16_swapped_read_before_complete
    row17_by_value
    row17_captures_a_host_region
    row17_captures_a_reference
    row17_captures_a_reference_to_the_host
    row17_captures_rc
    row17_captures_what_it_changes
    row17_device_closure
    row17_device_host_region
    row17_device_region_of_another_device
    row17_device_seventeen_parameters
    row17_device_shared_where_exclusive_is_wanted
    row17_device_too_few_arguments
    row17_device_too_many_arguments
    row17_device_wrong_element_type
    row17_device_wrong_number
    row17_host_region
    row17_host_slice
    row17_inbox_in_place_of_its_view
    row17_returned_by_a_function
    row17_returns_a_view
    row17_seventeen_arguments
    row17_shared_where_exclusive_is_wanted
    row17_too_few_arguments
    row17_too_many_arguments
    row17_untyped_closure
    row17_wrong_element_type
}
