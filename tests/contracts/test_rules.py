"""Which test proves which rule of the storage protocol (DESIGN, section 4), and that each of them exists.

Rules of the run's side are proven in tests/rollups, of the store's and the reader's side in tests/store, tests/reading
and tests/contracts, of acceptance and marks in tests/ingest. tests/model/rules_off/test_rules_off.py and
tests/model/accept/test_machine.py switch them off one by one and see each missed.
"""

import re
from pathlib import Path

import pytest

RULES: dict[str, tuple[str, ...]] = {
    "1 stamp: given once, unique, only growing": (
        "ingest/accept/test_stamper.py::test_stamps_only_grow_whatever_the_clock_does",
        "ingest/accept/test_stamper.py::test_process_numbers_are_unique_under_a_race",
        "ingest/accept/test_stamper.py::test_a_number_whose_answer_was_lost_is_not_used_again",
        "spm/test_wire.py::test_an_envelope_comes_back_bit_for_bit",
    ),
    "2 version: only identical ones merge, a total order picks the winner": (
        "spm/store/versions/test_merge.py::test_merge_keeps_every_distinct_version_in_the_total_order",
        "spm/store/versions/test_merge.py::test_the_last_of_the_greatest_stamp_wins_and_no_stale_marker_over_a_value",
        "spm/store/versions/test_merge.py::test_merge_is_the_same_however_messages_are_grouped_ordered_and_repeated",
        "spm/store/encoding/test_codec.py::test_floats_of_any_bits_come_back",
    ),
    "3 series: durable before use, collisions to the dead letters": (
        "ingest/test_writer.py::test_series_whose_hashes_are_equal_are_never_merged",
        "ingest/test_writer.py::test_a_series_with_a_forged_id_dies_alone_with_a_letter_and_an_account",
        "spm/store/test_dictionary.py::test_of_two_racing_series_with_one_hash_exactly_one_goes_in",
        "ingest/test_writer.py::test_the_steps_are_series_then_log_then_account_then_pending",
    ),
    "4 manifest: one cell, check-and-put, nonce": (
        "spm/store/test_manifest.py::test_two_nonces_give_two_values",
        "contracts/test_backends.py::test_check_and_put_sets_only_from_the_expected_value",
    ),
    "5 store: write-once rows": (
        "ingest/test_writer.py::test_a_batch_put_again_changes_nothing",
        "ingest/test_writer.py::test_whoever_accounts_for_a_stamp_again_writes_the_same_row",
        "contracts/test_backends.py::test_put_twice_equals_put_once_and_adds_cells_to_a_row",
    ),
    "6 append: series, log, pending, ack": (
        "ingest/test_writer.py::test_the_steps_are_series_then_log_then_account_then_pending",
        "ingest/test_writer.py::test_whatever_call_fails_nothing_acked_is_missing_and_nothing_half_written_stays_unknown",
    ),
    "7 pending is valid at once; the cached tail tells its age": (
        "spm/query/test_reader.py::test_a_new_batch_is_seen_within_the_tails_age_and_the_answer_tells_its_time",
        "spm/query/test_reader.py::test_a_store_that_fails_while_the_tail_is_read_hides_nothing_afterwards",
        "ingest/transport/test_direct.py::test_a_message_is_durable_when_publish_returns",
    ),
    "8 a second batch with identical versions is harmless": (
        "ingest/test_writer.py::test_messages_written_twice_in_other_batches_are_counted_once",
        "rollups/run/test_driver.py::test_a_message_written_twice_is_counted_once_and_accounted_once",
    ),
    "9 read order: pending, then manifest": (
        "spm/query/test_reader.py::test_pending_is_read_before_the_manifest",
        "spm/query/test_reader.py::test_a_snapshot_is_never_older_than_the_tail_it_is_used_with",
        "spm/query/test_reader.py::test_a_run_at_any_moment_of_a_query_loses_nothing",
    ),
    "10 a missing row is never no data": (
        "spm/query/test_reader.py::test_every_history_answers_like_a_plain_dict",
        "spm/query/test_reader.py::test_a_missing_page_is_an_integrity_error_and_not_no_data",
        "spm/query/test_reader.py::test_a_missing_block_of_the_replay_list_is_an_integrity_error",
        "spm/query/test_reader.py::test_a_missing_pending_block_is_an_integrity_error_in_every_query_and_for_its_hour_only",
        "spm/query/test_reader.py::test_a_pending_block_that_a_purge_took_is_covered_by_its_generation",
        "spm/query/test_reader.py::test_a_query_that_meets_a_purged_generation_starts_again",
        "spm/store/versions/test_generations.py::test_without_its_directory_a_missing_page_is_not_taken_for_no_data",
    ),
    "11 hours only where exact": (
        "rollups/run/test_driver.py::test_late_data_corrects_hours_at_once_and_the_next_run_rebuilds_them",
        "rollups/run/test_driver.py::test_hours_equal_a_numpy_recount",
        "spm/query/test_reader.py::test_hours_without_a_tier_are_counted_from_raw",
        "spm/store/test_manifest.py::test_fingerprints_tell_apart",
    ),
    "12 the plan fixes parents and batches": (
        "rollups/decide/test_plan.py::test_a_plan_names_its_parents_and_exact_batches",
        "rollups/run/test_driver.py::test_a_unit_with_a_missing_block_is_given_up_and_the_others_go_on",
    ),
    "13 every attempt has its own generation": (
        "rollups/spark/test_job.py::test_a_worker_killed_in_a_task_is_replaced_and_the_run_goes_on",
        "rollups/run/test_driver.py::test_a_run_killed_anywhere_changes_no_answer_and_the_next_one_does_its_work",
    ),
    "14 the flip, its rebase and its unknown outcome": (
        "rollups/run/test_races.py::test_a_minor_run_that_lost_to_one_of_other_hours_is_rebased",
        "rollups/run/test_races.py::test_a_full_merge_is_not_rebased_onto_an_entry_whose_generations_are_gone",
        "rollups/run/test_races.py::test_no_flip_crosses_the_fence_of_a_purge",
        "rollups/run/test_races.py::test_a_flip_of_unknown_outcome_is_looked_up",
        "rollups/run/test_races.py::test_hours_after_a_rebase_keep_the_fingerprint_of_what_they_were_made_of",
    ),
    "15 after the flip exactly the plan's cells go": (
        "rollups/run/test_driver.py::test_a_run_takes_exactly_the_pending_cells_of_its_plan",
    ),
    "16 chunks keep every version; inputs name every batch": (
        "spm/store/versions/test_generations.py::test_a_unit_read_back_whole_is_what_was_written_at_any_size_of_pages",
        "spm/store/versions/test_generations.py::test_small_pages_are_many_and_their_directory_names_each",
        "rollups/run/test_driver.py::test_minor_runs_add_generations_and_the_ninth_merges_them",
        "rollups/run/test_driver.py::test_hours_and_days_are_written_for_closed_hours_only",
    ),
    "17 retract and undo, and the purge that ends undoing": (
        "spm/store/versions/test_retractions.py::test_a_lens_shows_the_newest_version_that_is_known_and_not_retracted",
        "rollups/run/test_corrections.py::test_a_retraction_is_answered_at_once_and_rebuilt_by_the_next_run",
        "rollups/run/test_corrections.py::test_an_undo_gives_the_very_answers_of_before_with_and_without_a_run_between",
        "rollups/run/test_corrections.py::test_chunks_keep_what_is_retracted_through_a_full_merge",
        "rollups/delete/test_erase_retracted.py::test_any_purge_leaves_exactly_the_other_versions",
        "rollups/delete/test_erase_retracted.py::test_nobody_undoes_a_retraction_whose_purge_was_killed",
        "promises/test_any_range_is_taken_out_and_put_back.py::test_a20_any_range_is_taken_out_and_put_back_before_or_after_compaction",
    ),
    "18 roll back": (
        "rollups/run/test_rollback.py::test_a_roll_back_changes_no_answer",
        "rollups/run/test_rollback.py::test_batches_that_only_the_rolled_back_generation_held_are_replayed",
        "rollups/run/test_rollback.py::test_a_roll_back_below_the_history_is_refused",
        "rollups/run/test_rollback.py::test_runs_are_rolled_back_newest_first",
    ),
    "19 and 20 purge behind a fence": (
        "rollups/delete/test_purge.py::test_what_a_kept_history_needs_stays",
        "rollups/delete/test_purge.py::test_a_purge_killed_anywhere_changes_no_answer",
        "rollups/run/test_races.py::test_no_flip_crosses_the_fence_of_a_purge",
    ),
    "21 blocks go with their hour, never by age": (
        "rollups/delete/test_purge.py::test_blocks_that_wait_for_a_run_stay",
        "rollups/delete/test_purge.py::test_blocks_on_the_replay_list_stay",
    ),
    "22 epochs: moves, late writers, closing": (
        "rollups/move/test_redistribute.py::test_data_moves_to_the_shards_of_the_newest_epoch_and_no_answer_changes",
        "rollups/move/test_redistribute.py::test_a_move_killed_anywhere_changes_no_answer_and_the_next_one_does_its_work",
        "rollups/move/test_redistribute.py::test_an_epoch_with_anything_in_its_shards_is_not_closed",
        "rollups/move/test_redistribute.py::test_nothing_is_rolled_back_into_a_closed_epoch",
        "ingest/test_writer_placement.py::test_what_was_acked_is_found_when_the_epoch_it_was_first_put_by_is_closed",
        "spm/query/rolled/test_resolutions.py::test_a_metric_in_two_shards_is_merged_before_winners_are_chosen",
    ),
    "23 retention: sealing, sealed, expired": (
        "rollups/delete/test_seal.py::test_a_sealed_day_answers_from_hours_what_its_samples_said",
        "rollups/delete/test_seal.py::test_a_sample_acked_while_its_hour_is_sealed_is_in_or_counted_as_late",
        "rollups/delete/test_seal.py::test_retention_killed_anywhere_is_finished_by_the_next",
        "rollups/delete/test_seal.py::test_a_retraction_after_the_seal_leaves_its_hours_as_they_are",
        "rollups/run/test_sealed_hours.py::test_a_seal_is_never_rebased",
    ),
    "24 ledger: per stamp, with counts and the rows of its batch": (
        "spm/store/ledger/test_commit_records.py::test_a_commit_comes_back_with_its_outcome_and_batch",
        "spm/store/ledger/test_commit_records.py::test_every_cell_of_a_batch_names_all_rows_of_the_batch",
        "ingest/test_writer.py::test_rejected_lines_are_accounted_once_per_message",
        "rollups/run/test_driver.py::test_a_message_written_twice_is_counted_once_and_accounted_once",
        "spm/store/ledger/test_outcomes.py::test_every_sample_has_the_outcome_that_plain_counting_gives_it",
        "spm/store/ledger/test_outcomes.py::test_what_a_run_moves_while_it_is_read_is_seen_once",
        "ingest/test_writer.py::test_account_rows_say_how_many_samples_the_message_had",
        "ingest/accounting/test_watermark_keeper.py::test_each_sample_has_one_outcome_when_some_died",
        "model/accept/test_machine.py::test_a_few_histories_break_no_rule",
    ),
    "25 one transaction, one order of steps": (
        "contracts/test_backends.py::test_check_and_put_sets_only_from_the_expected_value",
        "model/test_machine.py::test_no_answer_on_disk_is_wrong_at_any_of_two_thousand_steps",
    ),
    "26 marks, E, and what is known at it": (
        "spm/store/ledger/test_watermarks.py::test_the_newest_announcement_is_the_furthest_ever_made",
        "spm/store/ledger/test_watermarks.py::test_of_two_keepers_with_the_same_view_one_moves_the_mark",
        "spm/store/ledger/test_watermarks.py::test_e_says_the_same_of_every_stamp_however_far_marks_have_come",
        "spm/store/ledger/test_watermarks.py::test_a_lens_shows_only_what_is_known",
        "ingest/accounting/test_watermark_keeper.py::test_a_mark_waits_for_the_one_that_is_missing_and_goes_as_far_as_words_allow",
        "ingest/accounting/test_watermark_keeper.py::test_stragglers_of_a_process_that_was_killed_are_named_once_it_is_gone",
        "ingest/accounting/test_watermark_keeper.py::test_a_process_that_was_taken_for_gone_goes_on_and_nothing_is_counted_twice",
        "ingest/accounting/test_watermark_keeper.py::test_a_look_that_fails_anywhere_is_made_good_by_the_next",
        "model/accept/test_machine.py::test_some_hundred_histories_break_no_rule",
        "model/accept/test_machine.py::test_a_history_goes_wrong_without_its_rule",
    ),
    "all of them together": (
        "model/test_machine.py::test_no_answer_in_memory_is_wrong_at_any_of_ten_thousand_steps",
        "model/rules_off/test_rules_off.py::test_a_history_goes_wrong_without_its_rule",
        "spm/query/test_truth.py::test_every_answer_equals_a_plain_count_of_versions",
    ),
    "invariant 4: tenants never meet": (
        "spm/store/test_keys.py::test_no_row_of_one_tenant_lies_in_a_range_of_another",
        "spm/query/test_reader.py::test_apps_never_see_each_other",
        "ingest/test_writer.py::test_apps_of_one_batch_do_not_mix",
    ),
    "damage is found, named, set aside and skipped": (
        "spm/store/encoding/test_blocks.py::test_every_flipped_bit_is_found_in",
        "spm/query/test_quarantine.py::test_a_flipped_bit_leaves_its_row_out_and_touches_nothing_else",
    ),
}

TESTS = Path(__file__).parent.parent
EVERY = sorted({name for names in RULES.values() for name in names})


@pytest.mark.parametrize("name", EVERY)
def test_a_rules_proof_exists(name: str) -> None:
    path, _, function = name.partition("::")
    assert re.search(rf"^def {function}\(", (TESTS / path).read_text(), re.MULTILINE)


def test_every_rule_of_this_stage_has_a_proof() -> None:
    named = {int(n) for title in RULES for n in re.findall(r"\d+", title.split(":")[0]) if not title.startswith("inv")}
    assert set(range(1, 27)) <= named
