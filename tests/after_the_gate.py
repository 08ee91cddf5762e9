"""Tests that `make check` leaves to `make test`, because they take long; smaller tests beside them run in the gate.

Each takes more than 0.25 s of CPU if it searches or simulates, and more than 0.6 s otherwise.  `replitree_verify.pins` says
which model `make check` leaves out.  Some files mark other tests themselves.
"""

from __future__ import annotations

AFTER_THE_GATE = {
    "tests/bench/test_merges.py::test_a_merge_is_measured_in_a_process_of_its_own": (),
    "tests/cli/test_start_up.py::test_reader_that_has_seen_enough_is_no_error": (),
    "tests/cli/test_verify.py::test_reduction_leaves_states_out": (),
    "tests/cli/test_verify.py::test_simulation_is_the_same_every_time": (),
    "tests/cli/test_verify_packed.py::test_a_mutant_of_a_packed_model_is_caught": (),
    "tests/cli/test_wrong_input.py::test_output_that_can_not_be_written_is_an_error_of_one_line": ("arguments1",),
    "tests/client/test_deletions.py::test_every_reader_shows_what_the_model_has": (),
    "tests/client/test_engines.py::test_engines_agree_on_random_rows": (),
    "tests/client/test_feed_bytes.py::test_a_feed_takes_at_most_so_many_times_what_was_inserted": (),
    "tests/client/test_feed.py::test_rows_at_a_later_index_are_those_before_and_the_changes": (),
    "tests/client/test_sharded_stores.py::test_a_command_leaves_no_objects_that_nothing_owns": (),
    "tests/client/test_sharded_stores.py::test_all_shards_move_to_a_store_and_back": (),
    "tests/client/test_sharded_stores.py::test_buckets_move_between_shards_in_a_store": (),
    "tests/client/test_sharded_stores.py::test_each_shard_has_its_rows_in_the_store_once": (),
    "tests/client/test_sharded_stores.py::test_parts_of_a_tiered_table_go_into_the_store_when_they_are_old": (),
    "tests/client/test_sharded_feed.py::test_the_feed_between_any_cuts_is_the_difference_of_what_they_show": (),
    "tests/client/test_sharded_feed.py::test_rows_at_a_later_cut_are_those_before_and_the_changes": (),
    "tests/fuzz/test_fuzz.py::test_every_input_is_accepted_or_refused": (
        *("tests.fuzz.on_json", "tests.fuzz.on_text", "tests.fuzz.on_http", "tests.fuzz.on_page", "tests.fuzz.on_rows"),
    ),
    "tests/fuzz/test_fuzz.py::test_findings_are_saved_and_end_with_exit_code_1": (),
    "tests/protocol/test_feed.py::test_sums_of_a_summing_table_follow_the_feed": (),
    "tests/protocol/test_restore.py::test_when_the_replica_were_good_at_once_it_would": (),
    "tests/replica/test_feed_journal.py::test_the_journal_gives_the_definition_whatever_process_has_written_it": (),
    "tests/replica/test_lean_start.py::test_a_definition_that_is_not_understood_is_refused_when_its_types_can_be_looked_at": (
        *(),
    ),
    "tests/replica/test_lean_start.py::test_a_replica_is_active_and_serves_snapshots_before_anything_heavy_is_loaded": (
        *(),
    ),
    "tests/replica/test_merges.py::test_a_partition_with_many_parts_is_merged_before_inserts_are_refused": (),
    "tests/replica/test_moved_once.py::test_a_part_is_not_put_again_while_nothing_says_whether_it_is_there": (
        "silent_replicas-folder",
    ),
    "tests/replica/test_packed_parts.py::test_a_kill_at_any_step_of_expiry_or_of_a_return_loses_nothing_that_is_needed": (),
    "tests/replica/test_packed_parts.py::test_a_kill_at_any_step_of_packing_and_reading_leaves_every_part_readable": (),
    "tests/replica/test_packed_parts.py::test_any_sequence_gives_what_it_gives_without_packs": (),
    "tests/replica/test_versions.py::test_every_time_is_known_after_restarts": (),
    "tests/replica/test_versions.py::test_what_is_known_after_any_crash_is_what_the_log_says": ("nothing", "cut"),
    "tests/replica/test_views.py::test_a_view_is_there_for_every_insert_beside_its_creation": (),
    "tests/spark/test_evolve.py::test_task_of_the_data_source_reads_every_version": (),
    "tests/storage/test_changed_rows.py::test_a_delete_gives_the_rows_that_are_missing": (),
    "tests/storage/test_conditions.py::test_calculated_comparisons_are_the_plain_ones": (),
    "tests/storage/test_dataset.py::test_a_filter_finds_the_rows_that_it_finds_in_all_parts": (),
    "tests/storage/test_disk_moving.py::test_who_lists_what_leaves_never_finds_half_a_note": (),
    "tests/storage/test_evolve_nested.py::test_every_row_shows_what_the_model_says": (),
    "tests/storage/test_expression.py::test_every_cast_gives_its_type_or_says_why_not": (),
    "tests/storage/test_ipc_extent.py::test_mutated_streams_end_no_process_and_are_no_defect": (),
    "tests/storage/test_merge.py::test_a_merge_is_what_one_insert_of_all_the_rows_would_be": (),
    "tests/storage/test_mutation.py::test_chains_may_be_long_where_they_need_no_stack": (),
    "tests/test_lean.py::test_pyarrow_loads_pandas_where_it_finds_it_and_works_where_it_does_not": (),
    "tests/verify/bridge/test_bridge.py::test_a_simulated_insert_that_is_dropped_while_it_is_open_is_settled_all_the_same": (
        *(),
    ),
    "tests/verify/bridge/test_bridge.py::test_a_simulated_insert_that_is_given_up_is_refused": (),
    "tests/verify/bridge/test_bridge.py::test_every_step_of_a_model_has_a_way": ("recover_gone", "join_clean"),
    "tests/verify/bridge/test_bridge.py::test_simulated_runs_take_every_action": (),
    "tests/verify/bridge/test_quorum.py::test_a_mutant_takes_a_step_that_has_no_way": ("read_quorum-read-shows-open",),
    "tests/verify/bridge/test_quorum.py::test_every_step_of_a_model_has_a_way": ("quorum_mutate",),
    "tests/verify/bridge/test_replication.py::test_a_mutant_takes_a_step_that_has_no_way": (
        "lost_recovering-lost-while-recovering",
    ),
    "tests/verify/bridge/test_replication.py::test_a_part_whose_loss_is_being_executed_is_not_declared_lost_again": (),
    "tests/verify/bridge/test_replication.py::test_steps_of_a_model_are_actions_of_the_packed_model": ("drop_range",),
    "tests/verify/feeds/test_feeds.py::test_mutant_is_caught": ("pack-not-synced",),
    "tests/verify/histories/test_search.py::test_every_anomaly_of_a_small_history_is_one_by_itself": (),
    "tests/verify/histories/test_search.py::test_rules_and_search_agree_on_small_histories": (),
    "tests/verify/histories/test_search.py::test_search_and_all_orders_agree": (),
    "tests/verify/lone/test_lone.py::test_mutant_is_caught": ("own-admission-not-minded",),
    "tests/verify/lone/test_lone.py::test_what_a_lone_place_does_not_promise_is_known": (),
    "tests/verify/nemesis/test_strikes.py::test_every_round_heals_what_it_has_struck": (),
    "tests/verify/nemesis/test_strikes.py::test_the_same_seed_strikes_in_the_same_way": (),
    "tests/verify/openings/test_openings.py::test_mutant_is_caught": ("doubt-not-minded",),
    "tests/verify/packed/test_search.py::test_no_state_has_more_successors_than_there_is_room_for": (
        *("mended/replication-queues", "mended/quorum-queues", "published/quorum-views"),
    ),
    "tests/verify/packed/test_search.py::test_states_that_stand_for_others_stand_for_all_of_them": (
        *("mended/replication-queues", "mended/quorum-queues", "published/quorum-views"),
    ),
    "tests/verify/packed/test_search.py::test_what_is_eventually_so_needs_its_fairness": (),
    "tests/verify/tablets/test_tablets.py::test_mutant_is_caught_by_the_invariant_that_it_breaks": (
        *("deposed-collects-data", "left-with-the-first-barrier", "loss-accepted-by-a-candidate"),
        *("quorums-do-not-meet", "unnamed-snapshot-passed", "doubt-is-nothing", "zero-entry-not-awaited"),
    ),
    "tests/verify/test_ample.py::test_a_search_that_overlooks_what_others_do_is_found_out": (),
    "tests/verify/test_ample.py::test_mutant_breaks_the_same_invariant": ("read-shows-open",),
    "tests/verify/test_ample.py::test_the_same_is_to_be_seen_as_without_ample_steps": (
        *("quorum_stale", "quorum_commit_doubt"),
    ),
    "tests/verify/test_determinism.py::test_two_hash_seeds_give_the_same_states_traces_and_runs": (),
    "tests/verify/test_left_out.py::test_a_model_notices_what_it_needs": (
        *("fx.Check(layout.host(replica), epoch)-ids_command-I9", "*conditions.unchanged-roll_session-DENSE"),
    ),
    "tests/verify/test_listed.py::test_every_model_is_explored_when_the_list_says_it_is": (),
    "tests/verify/test_models.py::test_an_activation_may_take_back_what_is_covered_before_or_after_it_compares": (
        "lost_result",
    ),
    "tests/verify/test_mutants.py::test_mutant_is_caught": (
        *("rewrite-left-staged", "late-mark-kept", "drop-during-merge", "share-named-again"),
        *("lost-without-new-epochs", "other-discarded", "sources-of-lost-kept", "published-fetched"),
    ),
    "tests/verify/test_record.py::test_a_model_of_any_room_is_recorded_with_what_its_exploration_counts": (
        "published/truncate-log",
    ),
    "tests/verify/test_record.py::test_every_room_is_recorded": (),
    "tests/verify/test_record.py::test_texts_for_people_are_no_code": (),
    "tests/verify/test_record.py::test_the_code_of_a_model_is_what_its_process_imports": (),
    "tests/verify/test_reduction.py::test_fingerprints_overlook_nothing_that_whole_states_would_show": (),
    "tests/verify/test_reduction.py::test_verdict_probes_and_ends_are_the_same_without_reduction": (
        *("fetch_partitions", "results_killed", "stored_left_expiry", "stored_fsck_write"),
        *("stored_merge_paused", "stored_fsck_again"),
    ),
    "tests/verify/test_registry.py::test_seeds_are_simulated_up_to_and_without_the_last": (),
    "tests/verify/test_registry.py::test_what_is_simulated_does_not_depend_on_the_number_of_workers": (),
    "tests/verify/test_simulate.py::test_readers_of_the_feed_of_a_cluster_get_the_difference_of_what_reads_show": (),
    "tests/verify/test_simulate.py::test_seeds_find_nothing_and_see_the_rare_branches": (),
    "tests/verify/test_simulate.py::test_seeds_with_streams_find_nothing_and_insert_each_batch_once": ("first",),
    "tests/verify/test_simulate_moving.py::test_a_claim_is_given_back_only_by_the_replica_that_made_it": (
        *("372", "1050"),
    ),
    "tests/verify/test_simulate_moving.py::test_a_seed_catches_the_mutant": (
        *("claim-kept-102-CONVERGES", "notes-forgotten-14-CONVERGES"),
    ),
    "tests/verify/test_simulate_moving.py::test_seeds_find_nothing_and_see_the_rare_branches": (),
    "tests/verify/test_simulate_sharded.py::test_seeds_find_nothing_and_see_the_rare_branches": (),
    "tests/verify/test_simulate_sharded.py::test_servers_commit_groups_of_inserts_for_all_shards_in_later_seeds": (),
    "tests/verify/test_simulate_sharded.py::test_the_same_seed_is_the_same_run_and_the_seeds_of_more_shards_are_others": (),
    "tests/verify/test_simulate_shared.py::test_a_part_that_comes_while_the_store_is_opened_gets_its_mark": (
        *("147", "746"),
    ),
    "tests/verify/test_simulate_shared.py::test_a_replica_whose_epoch_has_moved_unheard_leaves_no_object_of_a_dropped_table": (
        *(),
    ),
    "tests/verify/test_simulate_shared.py::test_a_seed_catches_the_mutant": (
        *(
            "sources-of-broken-dropped-804-KEPT",
            "new-content-unmarked-1153-MARKED",
            "released-under-known-epoch-2409-KNOWN",
        ),
    ),
    "tests/verify/test_simulate_shared.py::test_a_seed_is_a_run_with_a_store_too": (),
    "tests/verify/test_simulate_shared.py::test_rows_of_a_share_that_its_replica_has_not_registered_may_be_declared_lost": (
        *(),
    ),
    "tests/verify/test_simulate_shared.py::test_seeds_find_nothing_and_see_the_rare_branches": (),
    "tests/verify/test_together.py::test_stale_read_is_caught_where_an_insert_is_acknowledged_meanwhile": (
        *("end-of-log-before-commit", "read-without-sync", "read-at-own-pointer"),
    ),
    "tests/verify/views/test_views.py::test_random_histories_find_a_mutant": (),
    "tests/verify/views/test_views.py::test_random_histories_of_larger_models_hold": (),
}
"""A test, with the parameters with which the gate does not run it; none are named: with all."""
