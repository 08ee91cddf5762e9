"""Tests that only `make nightly` runs, because they take long; smaller tests of the same files check the same by day.

`replitree_verify.pins` says by its size which model is explored only at night.  Some files mark other tests themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

AT_NIGHT = {
    "tests/verify/test_mutants.py::test_mutant_is_caught": (
        *("recovers-while-executing", "result-forgotten-for-who-joins", "renewed-as-it-was-only", "second-copy-kept"),
        *("recovery-goes-on-in-doubt", "drop-of-named-parts", "prepared-twin-kept", "drop-before-covered-insert"),
        *("recovery-ends-away", "executed-unnoticed", "drop-leaves-covered-parts", "tail-believed"),
        *("marked-though-joined-again", "open-entry-cleaned", "prepared-forgotten", "lost-though-mended"),
        *("swept-before-recovery", "forgets-too-early", "unpulled-parts-set-aside"),
    ),
    "tests/verify/tablets/test_tablets.py::test_mutant_is_caught_by_the_invariant_that_it_breaks": (
        *("declined-looked-at-again", "references-looked-for-with-the-log", "silence-is-loss", "loss-recorded-last"),
        "barrier-at-the-snapshot",
    ),
    "tests/verify/leases/test_leases.py::test_mutant_is_caught": ("lowered-for-later-entries-only",),
    "tests/verify/tablets/test_reductions.py::test_messages_that_are_forgotten_would_change_nothing": ("loss",),
    "tests/verify/packed/test_golden.py::test_replicas_that_are_alike_are_counted_once": (
        *("mended/replication-queues-limits5-2113678", "mended/quorum-queues-limits7-3853800"),
    ),
    "tests/verify/bridge/test_bridge.py::test_a_mutant_takes_a_step_that_has_no_way_after_many_states": (
        "recover_away-recovery-ends-away",
    ),
    "tests/verify/bridge/test_bridge.py::test_every_step_of_a_larger_model_has_a_way": (
        *("recover_source_returns", "recover_crash"),
    ),
    "tests/verify/bridge/test_quorum.py::test_every_step_of_a_larger_model_has_a_way": (
        *("read_linearizable", "read_session", "read_sequential"),
    ),
    "tests/verify/bridge/test_replication.py::test_every_step_of_a_model_has_a_way": (
        *("together_crash", "together_lag", "together_merge_lag"),
    ),
    "tests/verify/bridge/test_traces_changes_system.py::test_everything_that_a_cluster_did_has_a_way": (),
    "tests/verify/bridge/test_replication.py::test_a_mutant_takes_a_step_that_has_no_way_after_many_states": (
        *("drop_behind-drop-of-named-parts", "lost_mended-lost-though-mended"),
        *("drop_covered-drop-before-covered-insert", "drop_covered-drop-leaves-covered-parts"),
        "mutate_later-change-of-later-blocks",
    ),
    "tests/verify/tablets/test_simulate.py::test_rare_branches_are_seen_and_nothing_is_violated": (),
    "tests/verify/histories/test_search.py::test_rules_and_search_agree_on_a_thousand_histories": (),
    "tests/verify/histories/test_spark_system.py::test_right_and_wrong_histories_are_judged_alike": (),
    "tests/verify/feeds/test_feeds.py::test_mutant_is_caught": (
        *(
            "consumers-need-nothing",
            "fetched-parts-not-marked",
            "later-loss-not-looked-at",
            "loss-of-covers-not-looked-at",
        ),
        *("open-parts-change", "open-parts-not-read", "part-before-not-needed", "settled-as-inserted", "silent-loss"),
        *("copies-of-readers-removed", "folders-go-before-their-pack", "marks-without-folders"),
        *("old-inserts-not-looked-up", "pack-goes-with-its-first-part"),
    ),
    "tests/verify/test_record.py::test_a_model_of_any_room_is_recorded_with_what_its_exploration_counts": ("lease",),
    "tests/verify/test_simulate_moving.py::test_a_seed_catches_the_mutant": (
        *("moved-never-let-go-126-CONVERGES", "own-claim-kept-1050-CONVERGES"),
    ),
    "tests/verify/test_simulate_quorums.py::test_clients_of_a_long_run_do_not_fill_the_log_with_what_failed": (),
    "tests/verify/test_simulate_shared.py::test_a_seed_catches_the_mutant": ("attempts-not-given-up-14-CONVERGES",),
    "tests/damage/test_damage.py::test_no_reader_shows_a_wrong_row_and_all_damage_is_repaired_or_reported": (
        *("bucket", "store"),
    ),
    "tests/faults/test_faults.py::test_a_mixture_of_all_faults_loses_and_doubles_nothing": (),
    "tests/faults/test_away.py::test_replicas_are_back_by_themselves_after_a_lost_quorum_and_after_all_data_were_lost": (),
    "tests/faults/test_broken_source.py::test_a_source_that_broke_is_not_needed_where_its_successors_are": ("2",),
    "tests/faults/test_catching_up.py::test_a_replica_that_was_paused_pulls_more_than_one_pull_takes_and_goes_on_pulling": (),
    "tests/faults/test_deposed_leader.py::test_a_replica_at_a_deposed_leader_says_nothing_rather_than_something_old": (),
    "tests/faults/test_judged.py::test_a_short_run_under_all_faults_keeps_every_promise_and_leaves_a_history": (),
    "tests/faults/test_lagging_follower.py::test_a_replica_behind_says_nothing_rather_than_something_old": (),
    "tests/faults/test_lagging_follower.py::test_a_read_without_sync_behind_is_caught_from_the_recorded_history": (),
    "tests/faults/test_nemesis.py::test_a_killed_process_is_gone_and_another_one_comes": ("kill-two-targets1",),
    "tests/faults/test_nemesis.py::test_a_leader_that_is_isolated_is_replaced": ("both", "up"),
    "tests/faults/test_nemesis.py::test_the_ensemble_without_its_leader_finds_another": ("zk-pause-leader",),
    "tests/machines/rounds/test_rounds.py::test_killed_leaders_under_load_while_the_group_suffers_lose_nothing": (),
    "tests/cli/test_repair_system.py::test_when_all_replicas_are_lost_the_advice_leads_back": (),
    "tests/cli/test_restore_system.py::test_what_only_another_replica_had_is_set_aside_there": (),
    "tests/cli/test_restore_sharded_system.py::test_shards_that_stand_at_no_common_cut_are_told": (),
    "tests/cli/test_system.py::test_changes_of_a_table": (),
    "tests/cli/test_system.py::test_sql_prints_csv": (),
    "tests/cli/test_verify_nemesis_system.py::test_what_is_struck_is_healed_before_a_run_that_is_stopped_ends": (),
    "tests/cli/test_verify_nemesis_system.py::test_rows_that_get_lost_are_noticed_and_the_table_stays": (),
    "tests/cli/test_up_system.py::test_up_leaves_a_replica_alone_that_was_stopped": (),
    "tests/cli/test_up_system.py::test_up_warns_of_tables_that_zookeeper_has_lost": (),
    "tests/cli/test_verify_nemesis_system.py::test_a_driver_of_spark_is_killed_and_its_streams_are_judged": (),
    "tests/cli/test_verify_nemesis_system.py::test_a_sharded_table_is_hurt_and_judged": (),
    "tests/cli/test_restore_killed_system.py::test_a_restore_that_is_killed_again_and_again_is_done_once": (),
    "tests/client/test_clouds_system.py::test_a_table_of_real_replicas_lies_there": ("s3", "az"),
    "tests/client/test_clouds_system.py::test_a_tablet_lies_there": ("s3", "gs"),
    "tests/client/test_consumers_system.py::test_what_a_consumer_has_not_read_survives_kills_of_all_replicas": (),
    "tests/client/test_engines_system.py::test_lazy_results_stay_the_same_while_the_table_changes": ("store",),
    "tests/client/test_many_parts.py::test_delete_of_one_row_renames_one_part_of_a_thousand": (),
    "tests/client/test_views_system.py::test_an_insert_that_is_repeated_changes_neither_table": (),
    "tests/client/test_views_system.py::test_a_view_that_is_created_beside_inserts_has_each_row_once": (),
    "tests/client/test_shared_merges_system.py::test_who_writes_some_files_of_a_part_anew_is_killed": ("folder",),
    "tests/client/test_shared_merges_system.py::test_who_merges_is_paused_for_longer_than_its_session": (),
    "tests/client/test_shared_merges_system.py::test_who_merges_is_killed": ("folder",),
    "tests/client/test_moving_system.py::test_replicas_are_killed_while_a_table_moves_to_and_fro": ("faulty",),
    "tests/client/test_rejoin_system.py::test_a_process_that_stood_still_while_its_table_was_made_anew_changes_nothing": (
        *("folder",),
    ),
    "tests/client/test_tags_system.py::test_retention_of_a_table_holds_while_replicas_are_killed": (),
    "tests/client/test_packed_system.py::test_thousands_of_tiny_inserts_are_packed_and_read_after_a_kill": (),
    "tests/client/test_sharded_feed.py::test_the_feed_between_any_cuts_is_the_difference_of_what_they_show": ("1",),
    "tests/client/test_sharded_commands_system.py::test_commands_are_in_all_shards_once_whatever_is_killed": (),
    "tests/client/test_tags_system.py::test_tagged_versions_survive_kills_of_all_replicas": (),
    "tests/client/test_tags_system.py::test_restore_while_replicas_are_killed_is_done_once_and_alike": (),
    "tests/client/test_times_system.py::test_time_is_answered_after_the_log_was_cleaned_and_all_replicas_were_killed": (),
    "tests/spark/test_packed_feed.py::test_changes_in_packs_have_the_rows_of_the_client_by_the_catalog_and_by_the_format": (),
    "tests/spark/test_named_tables.py::test_a_session_without_the_jar_says_so_as_soon_as_spark_asks": (),
    "tests/spark/test_named_tables.py::test_a_jar_that_does_not_link_falls_back_with_one_clear_line": (),
    "tests/spark/test_catalog_rows.py::test_another_replica_takes_the_statement_of_a_leader_that_is_dead": (),
    "tests/spark/test_recorded_frames.py::test_sql_the_catalog_and_the_source_are_recorded_with_their_snapshots": (),
    "tests/spark/test_catalog_changes.py::test_a_stream_of_changes_is_the_same_by_every_name": (),
    "tests/spark/test_recorded_frames.py::test_batches_of_a_stream_are_recorded_before_they_are_inserted_and_once": (),
    "tests/spark/test_stream_source.py::test_a_table_that_the_catalog_names_is_the_same_stream": (),
    "tests/spark/test_stream_source.py::test_what_a_stream_of_the_catalog_can_not_do_it_says": (),
    "tests/spark/test_stream_source.py::test_a_stream_from_one_table_of_the_catalog_to_another_has_each_row_once": (),
    "tests/spark/test_streams_elsewhere.py::test_each_batch_of_tasks_that_do_not_see_the_folder_is_inserted_once": (
        *("format", "into"),
    ),
    "tests/spark/test_store_write.py::test_a_driver_that_is_killed_leaves_nothing_visible_and_nothing_for_good": (),
    "tests/spark/test_store_statements.py::test_a_driver_that_is_killed_while_it_changes_rows_leaves_nothing_for_good": (),
    "tests/replica/test_last_owners.py::test_two_last_owners_let_go_at_once": ("zookeeper-folder",),
    "tests/spark/test_store_write.py::test_a_driver_that_is_killed_while_it_merges_leaves_nothing_for_good": (),
    "tests/spark/test_random_damage.py::test_no_damaged_row_is_shown_by_spark": (),
    "tests/spark/test_damage.py::test_a_write_is_not_repeated_and_succeeds_when_it_is_run_again": (),
    "tests/spark/test_damage.py::test_every_reader_goes_on_with_another_replica_and_the_part_is_repaired": (),
    "tests/spark/test_damage.py::test_each_action_that_only_reads_goes_on_after_damage": (),
    "tests/spark/test_store.py::test_a_part_that_borrows_is_read_in_the_store": ("folder", "copied"),
    "tests/spark/test_store.py::test_both_ways_read_in_the_store": ("folder", "copied"),
    "tests/spark/test_store.py::test_catalog_reads_in_the_store": ("folder", "copied"),
    "tests/spark/test_store.py::test_nobody_asks_the_gateway_for_hosts_of_files": ("folder",),
    "tests/spark/test_store.py::test_conditions_and_columns_are_pushed_down_to_objects": ("folder",),
    "tests/spark/test_store.py::test_parts_of_older_columns_are_read_in_the_store": ("folder", "copied"),
    "tests/spark/test_store.py::test_no_plan_and_no_log_has_a_secret": ("folder", "copied"),
    "tests/spark/test_store.py::test_a_running_query_reads_on_while_its_parts_leave_everywhere": ("folder", "copied"),
    "tests/spark/test_store.py::test_a_part_that_is_gone_from_the_store_is_an_error_or_read_from_a_copy_never_fewer_rows": (
        *("folder", "copied"),
    ),
    "tests/spark/test_store.py::test_nothing_is_left_when_the_last_reader_lets_go": ("folder",),
    "tests/spark/test_store.py::test_frames_read_on_without_any_replica": ("folder", "copied"),
    "tests/spark/test_store_damage.py::test_no_reader_shows_a_wrong_row_where_no_good_copy_is_left": (
        "page header",
        "footer",
    ),
    "tests/spark/test_store_damage.py::test_the_read_goes_on_with_the_copy_of_a_replica_and_the_part_is_repaired": (
        "page header",
    ),
    "tests/spark/test_store_damage.py::test_without_its_sums_object_an_object_is_read_right": (
        *("damaged", "of another file"),
    ),
    "tests/spark/test_stream_deaths.py::test_many_drivers_that_are_killed_lose_and_double_no_row": (),
    "tests/spark/test_standalone.py::test_an_executor_is_killed_while_it_reads": (),
    "tests/spark/test_standalone.py::test_a_worker_is_killed_while_it_reads": (),
    "tests/spark/test_standalone.py::test_a_worker_is_killed_while_it_writes": (),
    "tests/spark/test_standalone.py::test_an_executor_is_killed_while_it_merges": (),
    "tests/spark/test_standalone.py::test_a_worker_is_killed_while_it_merges": (),
    "tests/spark/test_standalone_deaths.py::test_one_is_killed_when_its_task_has_sent_its_file": ("by_source-worker",),
    "tests/spark/test_standalone_deaths.py::test_one_is_killed_when_its_task_of_a_statement_has_sent_its_file": (
        "update-worker",
    ),
    "tests/spark/test_standalone_statements.py::test_a_statement_rewrites_rows_of_a_table_in_a_store": ("hidden",),
    "tests/spark/test_standalone_statements.py::test_one_is_killed_while_a_statement_rewrites_rows": (
        *("executor-merge", "worker-update", "worker-merge"),
    ),
    "tests/spark/test_standalone.py::test_a_driver_is_killed_while_it_writes": (),
    "tests/spark/test_jar.py::test_same_sources_give_the_same_bytes": (),
    "tests/spark/test_catalog_changes.py::test_changes_of_a_random_table_are_those_of_the_client": ("2",),
    "tests/spark/test_catalog_statements.py::test_defaults_are_what_inserts_get_that_leave_columns_out": (),
    "tests/spark/test_overwrite.py::test_final_frame_is_what_a_merge_leaves": (),
    "tests/spark/test_overwrite.py::test_job_whose_lease_is_gone_says_so": (),
    "tests/spark/test_overwrite.py::test_overwriting_with_nothing_empties_the_table": (),
    "tests/spark/test_overwrite.py::test_session_says_what_is_overwritten_unless_the_job_does": (),
    "tests/spark/test_store_write.py::test_an_inserted_frame_takes_the_place_of_what_was_there": (),
    "tests/test_java.py::test_spark_runs_through_the_wrapper": (),
    "tests/bench/test_read_store.py::test_both_tables_are_read_by_every_query": (),
    "tests/bench/test_shared.py::test_a_fetch_reads_a_manifest_and_no_rows_and_a_merge_leaves_one_copy": (),
    "tests/bench/test_verify.py::test_tlc_counts_the_same_states": (),
    "tests/shared/test_deleted.py::test_deleted_objects_come_back_from_copies_and_no_read_fails": ("seaweed-3",),
    "tests/bench/test_write_store.py::test_both_ways_write_all_rows_and_one_goes_through_a_replica": (),
}
"""A test, with the parameters with which only the night runs it; none are named: with all."""


def is_among(test: str, listed: Mapping[str, Collection[str]]) -> bool:
    """Return whether a test, by its node id, is in a list of tests with their parameters."""
    name, _, parameters = test.partition("[")
    return name in listed and (not listed[name] or parameters.removesuffix("]") in listed[name])
