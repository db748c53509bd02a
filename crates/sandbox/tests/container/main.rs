//! The container tiers against a real engine, from outside and from inside a worker.
//!
//! `./test` starts an engine of its own, with gVisor and an image, and says where: its socket in
//! `SYMBI_TEST_ENGINE`, the image's name in `SYMBI_TEST_IMAGE`.

#[cfg(test)]
mod agent;
#[cfg(test)]
mod behaviours;
#[cfg(test)]
#[path = "../both/done.rs"]
mod done;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod files;
#[cfg(test)]
mod host;
#[cfg(test)]
mod network;
#[cfg(test)]
mod refusals;

/// One test for each behaviour, on one tier.
macro_rules! on {
    ($kind:expr; $($module:ident::$name:ident),* $(,)?) => {
        $(
            #[test]
            #[ignore = "needs docker: run ./test"]
            fn $name() {
                crate::$module::$name($kind);
            }
        )*
    };
}

/// The same behaviours on both tiers.
macro_rules! on_both {
    ($($behaviour:tt)*) => {
        mod docker {
            on!(sandbox::ContainerKind::Docker; $($behaviour)*);
        }
        mod gvisor {
            on!(sandbox::ContainerKind::Gvisor; $($behaviour)*);
        }
    };
}

on_both!(
    behaviours::a_worker_is_nobody_without_rights_or_network,
    behaviours::its_environment_is_the_descriptors_alone,
    behaviours::exit_codes_and_streams_are_told_apart,
    behaviours::a_stream_at_its_limit_is_whole_and_one_byte_more_stops_the_worker,
    behaviours::a_stopped_worker_leaves_no_descendant,
    behaviours::memory_ends_at_its_limit,
    behaviours::processes_end_at_their_limit,
    behaviours::a_file_ends_at_its_limit,
    behaviours::scratch_space_ends_at_its_limit_and_nothing_else_is_writable,
    behaviours::standard_input_is_read_whole_also_a_large_one,
    behaviours::a_host_canary_and_the_hosts_listeners_are_out_of_reach,
    behaviours::two_workers_at_once_do_not_see_each_other,
    files::an_input_is_the_snapshot_read_only_without_its_neighbour,
    files::the_only_mounts_are_the_granted_files,
    files::an_output_file_comes_back_by_its_held_descriptor,
    files::a_fresh_output_is_exactly_one_regular_file,
    files::a_fresh_output_may_stand_beside_inputs,
    files::too_much_beside_a_fresh_output_stops_the_worker,
    files::a_stopped_worker_hands_nothing_back,
    network::nothing_of_a_workers_network_is_there_for_the_next,
    network::two_workers_at_once_share_no_loopback,
    network::its_names_are_its_own_and_it_is_told_no_name_server,
    faults::a_container_that_is_not_as_it_was_asked_for_never_starts,
    faults::an_engine_that_does_not_find_the_workers_files_starts_nothing,
    faults::a_creation_that_was_refused_or_is_seen_removed_frees_its_lease,
    faults::a_creation_that_may_still_come_keeps_its_lease,
    faults::a_start_whose_answer_is_lost_is_a_worker_that_was_stopped,
    faults::a_start_that_never_came_is_a_worker_that_did_not_start,
    faults::a_wait_whose_answer_is_lost_is_asked_again,
    faults::a_removal_that_fails_is_not_confirmed_and_is_tried_again,
    faults::a_container_that_somebody_removed_is_lost_and_leaves_nothing,
    agent::an_agent_talks_through_its_channel_and_has_nothing_else,
    refusals::a_program_that_is_not_in_the_image_is_a_failed_start,
    refusals::ten_wrong_images_charge_nothing_and_the_right_call_works,
    refusals::an_image_that_went_away_is_refused_and_charges_nothing,
    refusals::no_room_for_another_worker_starts_nothing,
    refusals::a_worker_that_is_dropped_is_removed,
    refusals::a_workers_folder_names_its_container_to_whoever_cleans_up,
);
