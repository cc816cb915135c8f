"""The tests of `make test` that need an engine: at least one for each rule, and few in all.

All other tests with an engine get the marker `slow`, also new ones: so `make test` stays short. If
the tests of a module depend on their order, list all of them or none.
"""

FAST_WITH_ENGINE: dict[str, tuple[str, ...]] = {
    "tests/tidemark/compute/test_clusters.py": ("test_a_plain_cluster_fires_once_and_on_time",),
    "tests/tidemark/compute/test_duplicate.py": (
        "test_runs_of_any_size_count_each_event_once",
        "test_a_function_that_drops_the_duplicate_mark_is_refused",
    ),
    "tests/tidemark/compute/test_in_memory.py": (
        "test_rows_computed_in_memory_equal_the_engines",
        "test_a_small_increment_sends_one_query",
    ),
    "tests/tidemark/compute/test_rollup.py": ("test_a_base_that_never_ran_is_named",),
    "tests/tidemark/compute/test_sliding.py": (
        "test_an_increment_counts_the_events_that_each_window_lacks",
    ),
    "tests/tidemark/define/test_aggregate.py": (
        "test_the_result_without_events_or_values",
        "test_sums_and_means_of_decimals_are_exact",
        "test_only_the_fields_that_a_type_needs_are_computed",
        "test_arrival_order_decides_between_events_at_one_instant",
        "test_distinct_values_of_any_type_are_counted",
        "test_top_k_is_exact_up_to_the_bound_and_null_beyond",
        "test_quantiles_are_existing_values",
        "test_collect_keeps_the_least_values",
        "test_python_functions_get_values_and_partials_in_order",
    ),
    "tests/tidemark/define/test_model.py": (
        "test_a_tumbling_window_includes_its_start_and_excludes_its_end",
        "test_an_event_without_a_time_has_no_window",
        "test_lateness_is_classified_at_its_boundaries",
    ),
    "tests/tidemark/define/test_transform.py": (
        "test_sums_of_unsupported_types_are_refused_before_a_run",
    ),
    "tests/tidemark/define/test_watermark.py": ("test_observe_reduces_rows_to_a_text",),
    "tests/tidemark/engine/queries/test_requests.py": (
        "test_fetch_returns_the_same_rows_as_the_client",
        "test_settings_are_restored_after_a_block_that_fails",
    ),
    "tests/tidemark/engine/queries/test_varying.py": ("test_an_uncompiled_literal_is_a_bigint",),
    "tests/tidemark/engine/test_connect.py": (
        "test_a_session_runs_a_query",
        "test_a_session_is_reopened_by_its_id",
        "test_sessions_without_an_id_are_isolated",
        "test_error_messages_hide_the_token",
    ),
    "tests/tidemark/quality/test_decided.py": (
        "test_a_retry_keeps_the_decision_of_the_first_attempt",
    ),
    "tests/tidemark/quality/test_gate.py": (
        "test_warnings_publish_and_a_row_set_fails_as_a_whole",
        "test_each_failing_row_is_quarantined_whatever_its_keys_are",
    ),
    "tests/tidemark/quality/test_overflow.py": (
        "test_a_window_that_overflows_is_quarantined_and_others_continue",
    ),
    "tests/tidemark/run/change/test_rebuild.py": (
        "test_a_promotion_gives_the_same_rows_as_a_backfill",
    ),
    "tests/tidemark/run/change/test_replay.py": (
        "test_a_replay_starts_at_an_arrival_or_an_instant",
    ),
    "tests/tidemark/run/erase/test_erase.py": (
        "test_an_invalid_condition_is_refused_with_the_columns",
    ),
    "tests/tidemark/run/test_correction.py": (
        "test_a_correction_counts_too_late_events_and_reports_changes",
    ),
    "tests/tidemark/run/test_findings.py": (
        "test_an_unpublished_commit_is_published_without_new_arrivals",
    ),
    "tests/tidemark/run/test_run.py": (
        "test_runs_of_any_size_publish_the_same_rows",
        "test_a_backfill_publishes_the_same_rows_as_the_stream",
        "test_backfills_of_ranges_add_up_to_the_whole",
        "test_a_backfill_between_two_runs_counts_events_once",
        "test_the_complete_result_includes_too_late_events",
        "test_the_late_table_has_the_events_that_no_window_counts",
        "test_no_run_happens_without_new_arrivals",
        "test_a_source_that_was_never_ingested_is_refused",
        "test_an_empty_range_is_refused",
        "test_an_unknown_column_is_named_before_anything_runs",
    ),
    "tests/tidemark/run/test_run_steps.py": ("test_the_steps_of_a_run_add_up_to_its_duration",),
    "tests/tidemark/store/event_log/test_log.py": (
        "test_a_log_returns_the_ingested_arrivals",
        "test_rows_beyond_the_timeline_are_removed_by_the_next_writer",
        "test_the_previous_writer_is_refused_and_writes_nothing",
    ),
    "tests/tidemark/store/event_log/test_log_columns.py": (
        "test_new_columns_are_added_and_null_in_earlier_rows",
        "test_other_schema_changes_are_refused_and_nothing_is_written",
    ),
    "tests/tidemark/store/event_log/test_lookup_tables.py": (
        "test_runs_of_any_size_join_the_same_versions",
        "test_a_missing_lookup_table_is_reported",
    ),
    "tests/tidemark/store/test_state.py": (
        "test_a_backfilled_range_is_ahead_until_the_stream_catches_up",
    ),
    "tests/tidemark/store/test_warehouse.py": (
        "test_a_version_is_written_once",
        "test_a_missing_table_is_reported",
        "test_a_table_written_by_a_newer_version_is_refused",
    ),
    "tests/tidemark/verify/test_changes.py": (
        "test_the_parts_that_differ_are_named",
        "test_the_windows_that_would_change_are_reported",
    ),
    "tests/tidemark/verify/test_lateness.py": ("test_lag_is_measured_from_earlier_arrivals",),
    "tests/tidemark/verify/test_parity.py": (
        "test_each_injected_difference_is_found_and_named",
        "test_few_rows_are_compared_in_memory",
    ),
    "tests/tidemark/verify/test_tap.py": ("test_the_prepared_step_shows_the_functions_rows",),
    "tests/tidemark/verify/test_trace.py": (
        "test_an_on_time_event_is_in_base_and_roll_up",
        "test_a_late_event_is_in_the_row_that_it_revised",
    ),
    "tests/tidemark_assets/jobs/test_corrections.py": (
        "test_a_correction_counts_too_late_events_once",
    ),
    "tests/tidemark_streaming/cli/ingestion/test_dead_letters.py": (
        "test_dead_letters_are_counted_shown_and_replayed",
    ),
    "tests/tidemark_streaming/cli/ingestion/test_close.py": (
        "test_ending_a_source_needs_arrivals_confirmation_and_no_ingest",
        "test_all_windows_close_when_the_source_ends",
        "test_commands_report_a_source_that_has_ended",
    ),
    "tests/tidemark_streaming/cli/inspection/test_quarantine.py": (
        "test_quarantined_windows_are_listed_and_shown",
        "test_each_result_is_returned_once_and_in_order",
        "test_invalid_selections_of_windows_are_refused",
        "test_windows_are_released_and_discarded",
        "test_each_quarantine_command_has_an_example_in_its_help",
    ),
    "tests/tidemark_streaming/cli/inspection/test_show.py": (
        "test_windows_are_shown_as_table_and_csv_and_late_events_too",
    ),
    "tests/tidemark_streaming/cli/inspection/test_scenarios.py": (
        "test_files_are_simulated_in_order_and_failures_reported",
    ),
    "tests/tidemark_streaming/cli/inspection/test_trace.py": (
        "test_trace_shows_an_event_as_text_and_as_json",
        "test_unknown_events_and_sources_are_refused",
    ),
    "tests/tidemark_streaming/cli/operations/test_changing.py": (
        "test_a_replay_writes_the_table_or_a_separate_one",
    ),
    "tests/tidemark_streaming/cli/operations/test_erase.py": (
        "test_erase_needs_confirmation_and_a_stopped_stream",
    ),
    "tests/tidemark_streaming/cli/test_commands.py": (
        "test_playing_the_same_days_twice_adds_no_arrivals",
        "test_run_processes_some_arrivals_and_a_backfill_all",
        "test_a_backfill_of_a_range_reports_its_counts",
        "test_a_bound_is_recommended_for_the_watermark",
        "test_status_shows_the_progress_of_sources_and_assets",
        "test_parity_exits_with_0_if_all_rows_are_equal",
        "test_a_stream_can_be_detached_and_stopped_later",
        "test_status_shows_why_a_stream_does_not_run",
        "test_a_range_without_windows_is_refused",
    ),
    "tests/tidemark_streaming/delta/test_delta.py": (
        "test_windows_are_equal_for_any_batch_size",
        "test_row_changes_are_events",
    ),
    "tests/tidemark_streaming/derived/test_chains.py": (
        "test_a_correction_is_a_step_of_a_chain_of_changes",
    ),
    "tests/tidemark_streaming/derived/test_joins.py": (
        "test_rows_without_a_valid_time_have_the_reason_of_late_tables",
    ),
    "tests/tidemark_streaming/derived/test_row_assets.py": (
        "test_prepared_rows_land_exactly_once_in_any_cut",
    ),
    "tests/tidemark_streaming/derived/test_silent_bases.py": (
        "test_steps_without_rows_need_no_engine",
    ),
    "tests/tidemark_streaming/extras/lane/test_lane.py": ("test_an_invalid_condition_is_refused",),
    "tests/tidemark_streaming/ingest/test_ahead.py": (
        "test_far_future_events_are_only_in_the_late_table",
    ),
    "tests/tidemark_streaming/ingest/test_columns.py": (
        "test_a_header_must_be_a_prefix_of_the_columns",
        "test_a_source_with_a_changed_type_stops_alone",
    ),
    "tests/tidemark_streaming/ingest/test_dead_letters.py": (
        "test_a_malformed_row_is_a_dead_letter_with_position_and_reason",
        "test_a_corrected_dead_letter_is_replayed_once_as_a_new_arrival",
    ),
    "tests/tidemark_streaming/ingest/test_impossible_time.py": (
        "test_events_with_an_invalid_timestamp_are_only_in_the_late_table",
    ),
    "tests/tidemark_streaming/ingest/test_ingest.py": (
        "test_the_facts_of_each_arrival_are_recorded",
        "test_a_bulk_load_gives_the_same_log",
        "test_a_concurrent_ingest_is_refused_with_the_firsts_process",
        "test_an_ingest_ends_after_a_takeover_by_another_machine",
        "test_the_end_of_a_source_is_its_last_arrival",
        "test_rows_can_define_the_watermark",
    ),
    "tests/tidemark_streaming/kafka/test_kafka_connector.py": (
        "test_an_event_keeps_its_kafka_metadata",
        "test_each_record_is_ingested_once_for_any_batch_size",
        "test_records_deleted_by_retention_are_reported_and_skipped_if_accepted",
        "test_a_recreated_topic_is_detected",
        "test_records_that_cannot_be_decoded_are_dead_letters",
        "test_slow_partitions_hold_the_watermark_but_idle_ones_do_not",
        "test_an_unreachable_broker_is_reported",
    ),
    "tests/tidemark_streaming/kafka/test_protected.py": ("test_a_corrected_dead_letter_is_masked",),
    "tests/tidemark_streaming/monitor/test_metrics.py": ("test_metrics_equal_the_tables",),
    "tests/tidemark_streaming/scenario/test_simulate.py": (
        "test_a_scenario_gives_its_expected_results",
        "test_a_scenario_gives_its_expected_results_as_a_stream",
    ),
    "tests/tidemark_streaming/sink/test_transactional_topic.py": (
        "test_an_aborted_position_is_ignored_even_with_read_uncommitted",
    ),
    "tests/tidemark_streaming/sink/test_writer.py": (
        "test_a_replaced_publisher_is_fenced",
        "test_a_new_epoch_replaces_everything_before_it",
    ),
    "tests/tidemark_streaming/streams/test_continuous.py": (
        "test_an_error_in_a_run_ends_the_stream_with_its_message",
    ),
    "tests/tidemark_streaming/streams/test_direct.py": (
        "test_rows_in_memory_equal_the_rows_in_the_event_log",
        "test_skipped_arrivals_are_processed_by_the_next_run",
    ),
    "tests/tidemark_streaming/streams/test_silent_sources.py": (
        "test_a_heartbeat_needs_no_engine",
    ),
    "tests/tidemark_streaming/test_store_requests.py": (
        "test_requests_of_ingests_runs_and_readers",
    ),
    "tests/tidemark_streaming/testing/test_trial.py": (
        "test_an_unexpected_result_is_reported_and_drawn",
    ),
}
"""The names of test functions by file."""
