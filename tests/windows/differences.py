"""What the tests of the program cannot expect on Windows, or under Wine, with reasons."""

_PROC = "it looks for files, child processes or system calls of the program, which are those of Wine"
_TERMINAL = "its terminal is a pseudoterminal, which is no console"
_KEYRING = "the credential store is always there, and the keyrings of Linux are not"
_MODES = "it checks modes and owners of Unix, in whose place are access control lists"
_STRACE = "it makes system calls of Linux fail, which Wine does too"
_FILE = "Wine cannot pass on stdin or stdout that is a file, so that Python does not start"
_COMMAND = "it runs a program of Unix, or a command line as of a Unix shell"
_DIRECTORY = "it needs a directory that cannot be on Windows: deleted while in use, below HOME, or of another user"
_SHELL = "it runs a program of Unix, or starts the program with a shell"
_PYTHON = "it changes the modules, or the home directory, of the interpreter in a way of Unix"
_TEXT = "Windows describes the error in other words"
_UNIX = "it needs a name, a path, a file or bytes that Windows does not have"
_SOCKET = "it connects to Redis over a Unix socket, or kills the process of the program, which is that of Wine"
_UNIX_SOCKET = "the proxy has no Unix socket, which Python does not support on Windows"
_AGENT = "the agent requires Linux"
_CANCEL = "Wine does not cancel a blocked write"
_SIGNAL = "the signal ends Wine, not the program"

# Tests that cannot run, by file, by file and name, or with parameters.
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        (
            "commands/test_proxy.py::test_a_note_says_what_to_run_in_another_shell[args0-line]",
            ("commands/test_proxy.py::test_a_socket_that_is_in_use_is_kept_and_one_that_was_left_behind_is_replaced"),
            "commands/test_proxy.py::test_a_socket_without_a_usable_path_is_a_usage_error[in a deleted directory]",
            "commands/test_proxy.py::test_a_unix_socket_in_a_private_directory_needs_no_key",
            "commands/test_proxy.py::test_ctrl_c_ends_the_proxy_with_exit_code_0[args0]",
            "commands/test_proxy.py::test_options_that_are_not_valid_are_refused[args3-is too long for a socket]",
            (
                "commands/test_proxy.py::"
                "test_options_that_are_not_valid_are_refused[args4-/dev/null exists and is not a socket]"
            ),
            "commands/test_proxy.py::test_sighup_ends_the_proxy_with_its_exit_code",
        ),
        _UNIX_SOCKET,
    ),
    **dict.fromkeys(
        (
            "commands/test_batch_jq_slow.py",
            "commands/test_batch_size.py",
            "commands/test_request_jq_processes.py",
            "commands/test_request_size.py",
            "journeys/test_clock_steps.py",
            "commands/test_batch_jq.py::test_a_second_interrupt_ends_the_filters",
            "commands/test_batch_jq.py::test_an_endless_filter_delays_no_other_line",
            "commands/test_batch_jq.py::test_the_filters_end_when_xapi_is_killed",
            "commands/test_profile_locks.py::test_an_edit_that_waited_uses_the_file_as_another_one_has_left_it",
            "commands/test_request_output.py::test_an_interrupted_download_leaves_no_file",
            "hostile/test_machine.py::test_a_crash_report_of_python_contains_no_secret",
            "hostile/test_machine.py::test_a_password_command_that_cannot_be_started_is_named",
            "journeys/test_storage_directories.py::test_a_renewal_opens_few_directories",
        ),
        _PROC,
    ),
    **dict.fromkeys(
        (
            "commands/test_batch_terminal.py",
            "commands/test_login_terminal.py",
            "commands/test_request_terminal.py",
            "commands/test_quiet.py",
            "commands/test_api_show.py::test_list_is_a_table_on_a_terminal",
            "commands/test_batch.py::test_a_terminal_shows_the_progress",
            "commands/test_batch.py::test_lines_typed_on_a_terminal_are_processed_one_by_one_without_a_progress_bar",
            "commands/test_batch_token.py::test_ctrl_c_at_the_password_prompt_ends_the_batch_immediately",
            "commands/test_batch_token.py::test_no_request_waits_while_the_user_types_the_password",
            (
                "commands/test_batch_token.py::"
                "test_the_password_is_prompted_for_on_a_terminal_while_lines_come_from_a_pipe"
            ),
            "commands/test_doctor.py::test_on_a_terminal_a_hint_of_a_check_that_passed_follows_in_the_same_sentence",
            "commands/test_doctor.py::test_on_a_terminal_a_new_user_sees_the_one_failure_first",
            "commands/test_doctor.py::test_on_a_terminal_checks_that_pass_keep_their_order",
            "commands/test_doctor.py::test_on_a_terminal_the_lines_fit_and_are_complete_without_color",
            "commands/test_profile.py::test_control_sequences_in_json_are_neutralized_and_the_json_is_equivalent",
            "commands/test_profile_list.py::test_a_narrow_terminal_gets_one_small_table_for_each_profile",
            "commands/test_profile_list.py::test_a_wide_terminal_gets_a_table_in_color",
            "commands/test_request_curl.py::test_control_characters_are_escaped_in_the_printed_command",
            "commands/test_request_jq.py::test_control_characters_of_results_are_shown_on_a_terminal",
            "commands/test_request_pages.py::test_control_characters_are_escaped_on_a_terminal_only",
            "commands/test_token_status.py::test_a_terminal_gets_a_small_table",
            (
                "journeys/test_automatic_login.py::"
                "test_after_a_rejected_password_xapi_prompts_again_and_no_process_waits_for_the_input"
            ),
            "journeys/test_automatic_login.py::test_ctrl_c_at_the_password_prompt_of_a_request_exits_with_130",
            "journeys/test_automatic_login.py::test_the_terminal_prompts_while_the_body_comes_from_a_pipe",
        ),
        _TERMINAL,
    ),
    **dict.fromkeys(
        (
            "commands/test_doctor.py::test_a_keyring_that_works_is_reported",
            "commands/test_doctor.py::test_a_missing_keyring_is_a_warning_with_auto_and_a_failure_if_selected",
            "commands/test_doctor.py::test_without_a_keyring_the_hint_is_the_storage_that_the_profile_has_settings_for",
            "commands/test_doctor.py::test_without_settings_and_a_keyring_the_hint_is_a_login_that_works",
            "commands/test_login.py::test_a_login_stores_its_token_in_the_real_keyring",
            "commands/test_logout_locations.py::test_a_token_in_the_keyring_of_another_session_is_deleted_there",
            (
                "commands/test_logout_locations.py::"
                "test_the_keyring_of_a_session_that_has_ended_is_named_and_the_account_stays_known"
            ),
            "commands/test_logout_locations.py::test_the_same_keyring_in_a_new_session_is_recognized_by_the_token",
            (
                "journeys/test_automatic_login.py::"
                "test_auto_without_a_keyring_works_for_one_command_and_names_the_alternative"
            ),
            "journeys/test_home_directories.py::test_keyring_runs_no_code_from_the_current_directory",
            "journeys/test_storage.py::test_a_plaintext_backend_is_not_used",
            "journeys/test_storage.py::test_a_plaintext_backend_is_used_if_it_is_named",
            "journeys/test_storage.py::test_a_broken_keyring_exits_with_13_in_time_and_auto_falls_back_to_memory[nobody's]",
        ),
        _KEYRING,
    ),
    **dict.fromkeys(
        (
            "journeys/test_other_users.py",
            "commands/test_api.py::test_the_index_is_a_private_file",
            "commands/test_batch_journal.py::test_a_journal_has_mode_0600_whatever_mode_it_had",
            "commands/test_doctor.py::test_a_group_writable_config_file_is_a_warning",
            "commands/test_request_completion.py::test_an_unsafe_state_directory_offers_nothing",
            "commands/test_request_continue.py::test_a_complete_download_has_the_mode_of_the_file_that_it_replaces",
            "commands/test_request_continue.py::test_a_download_that_broke_off_is_resumed",
            "commands/test_token_show.py::test_a_token_file_is_private_with_any_umask",
            "journeys/test_home_directories.py::test_doctor_reports_an_unsafe_state_directory_once",
            "journeys/test_home_directories.py::test_root_creates_nothing_in_the_home_directory_of_the_caller_of_sudo",
            (
                "journeys/test_storage_directories.py::"
                "test_an_unwritable_state_directory_exits_with_13_with_file_and_causes_one_warning_otherwise"
            ),
            "journeys/test_storage_directories.py::test_everything_written_is_private_with_any_umask",
            "journeys/test_storage_directories.py::test_files_of_another_user_are_rejected",
            "journeys/test_storage_directories.py::test_state_and_config_directories_may_be_links_of_the_same_user",
        ),
        _MODES,
    ),
    **dict.fromkeys(
        (
            "commands/test_batch_merge.py::test_more_outputs_than_can_be_open_are_merged",
            "commands/test_batch_journal.py::test_a_file_system_without_locks_is_named",
            "commands/test_batch_journal.py::test_a_full_disk_exits_with_14_and_the_written_journal_lines_are_valid",
            "commands/test_batch_merge.py::test_an_unsorted_output_that_cannot_be_stored_is_an_error",
            (
                "commands/test_logout_locations.py::"
                "test_a_login_that_is_killed_while_it_stores_leaves_an_entry_and_logout_needs_no_record"
            ),
            (
                "commands/test_logout_locations.py::"
                "test_a_logout_that_cannot_be_recorded_on_a_full_disk_is_not_reported_as_done"
            ),
            "commands/test_logout_locations.py::test_a_logout_that_is_killed_can_be_repeated",
            (
                "commands/test_logout_locations.py::"
                "test_an_account_that_cannot_be_recorded_on_a_full_disk_is_not_logged_in"
            ),
            "commands/test_request_continue_files.py::test_a_full_disk_is_reported",
            "commands/test_request_output.py::test_a_full_disk_exits_with_14_and_leaves_the_file_unchanged",
            "commands/test_request_output.py::test_a_request_body_that_cannot_be_spooled_exits_with_14",
            "journeys/test_home_directories.py::test_a_file_system_without_locks_is_reported",
            "journeys/test_storage_directories.py::test_a_failing_disk_fails_login_with_13_and_preserves_the_old_token",
        ),
        _STRACE,
    ),
    **dict.fromkeys(
        (
            "commands/test_batch_journal.py::test_a_journal_that_is_the_input_or_stdout_is_not_modified",
            "commands/test_batch_journal.py::test_the_journal_cannot_be_the_file_of_stdout",
            "commands/test_log.py::test_the_log_can_be_the_file_of_stdout",
            "commands/test_batch_merge.py::test_stdout_must_not_be_one_of_the_files",
            "commands/test_request_continue_files.py::test_stdout_by_name_is_not_a_file_that_can_be_continued",
            "commands/test_request_output.py::test_dev_stdout_is_written_to_and_not_replaced",
            "commands/test_request_replay.py::test_the_replay_has_the_same_body[a redirected file-_after_the_body]",
            "commands/test_request_replay.py::test_the_replay_has_the_same_body[a redirected file-_early_and_close]",
            "commands/test_request_replay.py::test_the_replay_has_the_same_body[a redirected file-_endless]",
        ),
        _FILE,
    ),
    **dict.fromkeys(
        (
            "commands/test_credential_helper.py",
            "commands/test_exec.py",
            "commands/test_login_passwords.py",
            "journeys/test_helper_storage.py",
            "commands/test_profile.py::test_an_invalid_key_or_value_exits_with_2_and_changes_nothing",
            "commands/test_profile.py::test_set_validates_and_stores_a_setting",
            "commands/test_doctor.py::test_a_password_command_is_searched_for_and_not_run",
            "commands/test_login.py::test_the_flags_that_a_profile_can_contain_are_written_to_it",
            (
                "commands/test_logout_locations.py::"
                "test_a_helper_that_no_longer_exists_is_named_and_the_account_stays_known"
            ),
            "commands/test_logout_locations.py::test_a_helper_that_was_changed_after_the_login_is_still_used",
            (
                "commands/test_logout_locations.py::"
                "test_the_password_of_another_server_comes_from_the_profile_of_that_server"
            ),
            "commands/test_logout_locations.py::test_two_profiles_of_an_account_may_have_different_helpers",
            "commands/test_profile_list.py::test_each_token_is_read_with_the_store_settings_of_its_profile",
            "journeys/test_destinations.py::test_a_password_command_given_with_a_base_url_is_stored_with_it",
            "journeys/test_destinations.py::test_a_profile_without_a_base_url_does_not_bind_its_command",
            "journeys/test_destinations.py::test_a_token_from_exec_is_not_used_for_another_base_url",
            "journeys/test_destinations.py::test_a_token_from_exec_is_used_for_its_base_url",
            "journeys/test_destinations.py::test_a_user_can_bind_a_token_to_a_base_url",
            "journeys/test_destinations.py::test_equivalent_base_urls_are_the_same",
            "journeys/test_destinations.py::test_exec_passes_on_only_the_profile_of_its_base_url",
            "journeys/test_token_file.py::test_each_command_reads_the_file",
            "commands/test_proxy.py::test_a_failed_login_is_502_until_the_password_is_corrected",
            "commands/test_proxy.py::test_another_password_is_tried_at_once_and_the_same_one_is_not",
        ),
        _COMMAND,
    ),
    **dict.fromkeys(
        (
            "commands/test_login.py::test_a_relative_path_in_a_deleted_directory_exits_with_2_before_anything_is_sent",
            "commands/test_profile.py::test_a_relative_path_in_a_deleted_directory_exits_with_2",
            "commands/test_profile.py::test_a_relative_path_is_stored_as_an_absolute_path",
            "hostile/test_machine.py::test_a_missing_or_foreign_home_directory_causes_no_crash",
            "journeys/test_home_directories.py::test_a_missing_home_directory_is_not_created",
            (
                "journeys/test_home_directories.py::"
                "test_a_relative_directory_in_a_deleted_one_exits_with_2_before_anything_is_sent"
            ),
            "journeys/test_home_directories.py::test_completion_is_installed_only_in_the_users_own_home",
            "journeys/test_storage_directories.py::test_any_location_of_the_directories_works_or_is_one_error_line",
        ),
        _DIRECTORY,
    ),
    **dict.fromkeys(
        (
            (
                "commands/test_batch_journal.py::"
                "test_a_journal_prints_responses_again_without_sending_them_and_sends_the_rest"
            ),
            "commands/test_logout_locations.py::test_a_damaged_entry_causes_a_warning_because_its_stores_are_not_known",
            (
                "commands/test_logout_locations.py::"
                "test_a_token_that_is_not_where_it_was_stored_is_an_error_until_its_entry_is_removed"
            ),
            "commands/test_token_show.py::test_with_a_supplied_token_the_keyring_is_not_imported",
            "journeys/test_storage.py::test_with_a_supplied_token_keyring_is_not_imported",
            "commands/test_proxy.py::test_after_max_time_the_command_ends_too",
            "commands/test_proxy.py::test_another_xapi_is_a_client_and_the_exit_code_is_that_of_the_command",
            "commands/test_proxy.py::test_the_end_of_the_command_is_the_end_of_the_proxy[command0-137]",
            "commands/test_proxy.py::test_the_end_of_the_command_is_the_end_of_the_proxy[command1-255]",
        ),
        _SHELL,
    ),
    **dict.fromkeys(
        (
            "commands/test_batch_jq.py::test_a_filter_that_cannot_run_exits_with_2_before_the_input_is_read",
            "commands/test_request_jq_failures.py::test_a_module_that_halts_is_an_error_and_does_not_change_the_file",
        ),
        _PYTHON,
    ),
    **dict.fromkeys(
        (
            (
                "cli/test_error_messages.py::"
                "test_an_error_states_what_happened_and_what_to_do[a password command that fails]"
            ),
            "cli/test_error_messages.py::test_an_error_states_what_happened_and_what_to_do[a port in use]",
            "cli/test_error_messages.py::test_an_error_states_what_happened_and_what_to_do[no keyring]",
            "commands/test_batch_merge.py::test_invalid_usage_is_named",
            "commands/test_batch_network.py::test_responses_through_a_proxy_and_over_tls_are_the_same",
            (
                "commands/test_login.py::"
                "test_invalid_usage_is_reported_in_one_line_and_nothing_is_"
                "sent[args14-env14---password-command: a quote is not closed]"
            ),
            (
                "commands/test_request_usage.py::"
                "test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent[a directory as a body-flags0]"
            ),
            (
                "commands/test_request_usage.py::"
                "test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent[an oversized URL-flags0]"
            ),
            (
                "commands/test_request_usage.py::"
                "test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent[an oversized URL-flags1]"
            ),
            "commands/test_request_continue_files.py::test_what_cannot_be_written_is_reported_before_the_request",
        ),
        _TEXT,
    ),
    **dict.fromkeys(
        (
            "commands/test_batch_journal.py::test_a_journal_must_be_a_regular_file",
            "commands/test_request_continue_files.py::test_a_symbolic_link_to_the_file_is_preserved",
            "commands/test_request_continue_files.py::test_no_symbolic_link_is_followed_to_the_part",
            "commands/test_request_curl.py::test_curl_sends_special_characters_in_part_and_file_names",
            "commands/test_request_curl.py::test_curl_sends_the_same_request",
            "commands/test_request_curl_options.py::test_options_without_a_curl_equivalent_are_reported",
            "commands/test_request_usage.py::test_an_argument_that_is_not_valid_utf_8_is_used_or_rejected_in_one_line",
            "commands/test_request_usage.py::test_unusable_certificates_are_reported_before_anything_is_sent",
            "journeys/test_storage_directories.py::test_names_that_the_locale_cannot_encode_are_stored",
            "journeys/test_storage_directories.py::test_what_is_in_place_of_a_lock_file_is_named",
            "journeys/test_token_file.py::test_an_unusable_file_exits_with_2_and_nothing_is_sent",
            (
                "commands/test_login.py::"
                "test_a_login_refuses_what_the_config_file_cannot_contain_before_it_sends_anything"
            ),
            "commands/test_profile.py::test_a_path_relative_to_a_directory_that_is_not_valid_utf_8_is_refused",
            "commands/test_profile.py::test_a_value_that_is_not_valid_utf_8_is_refused",
            "commands/test_request_usage.py::test_a_username_or_a_filter_that_is_not_valid_utf_8_is_named",
            "commands/test_proxy.py::test_a_command_gets_the_address_and_a_key_but_no_secret",
        ),
        _UNIX,
    ),
    **dict.fromkeys(
        (
            "machines/test_access.py",
            "machines/test_cluster.py",
            "machines/test_failing_server.py",
            "machines/test_login_lock.py",
            "machines/test_many_calls.py",
            "commands/test_logout_locations.py::test_a_record_that_another_machine_has_deleted_from_redis_is_no_error",
            "machines/test_one_login.py::test_a_failed_login_is_shared_with_the_machines_that_wait_for_it",
            (
                "machines/test_one_login.py::"
                "test_processes_of_8_machines_that_need_a_token_trigger_one_login_and_all_succeed"
            ),
            "machines/test_one_login.py::test_processes_of_8_machines_with_a_wrong_password_try_it_once",
            "machines/test_one_login.py::test_a_fresh_token_that_is_rejected_stops_the_logins_of_all_machines",
            "machines/test_one_login.py::test_a_renewal_takes_four_commands",
        ),
        _SOCKET,
    ),
    **dict.fromkeys(
        ("commands/test_logout_locations.py::test_a_token_in_the_agent_of_another_runtime_directory_is_deleted_there",),
        _AGENT,
    ),
    **dict.fromkeys(
        (
            (
                "commands/test_request_pages_failures.py::"
                "test_the_error_states_how_many_items_of_an_unfinished_page_were_printed"
            ),
        ),
        _CANCEL,
    ),
    **dict.fromkeys(
        (
            "commands/test_batch_termination.py",
            "commands/test_request_termination.py",
            "journeys/test_inherited_signals.py",
            "journeys/test_kills.py",
            "commands/test_sandbox.py",
            "commands/test_request_continue_processes.py",
            "commands/test_request_pages_stream.py::test_a_signal_ends_the_pages_at_once",
            "commands/test_proxy.py::test_a_note_says_what_to_run_in_another_shell[args1-lines]",
            "commands/test_proxy.py::test_sigterm_reaches_the_command",
        ),
        _SIGNAL,
    ),
}
