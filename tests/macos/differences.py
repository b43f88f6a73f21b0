"""What the tests of the program cannot expect on macOS, or of the imitation, with reasons."""

_AGENT = "the agent requires Linux"
_PROC = "it looks for files or child processes of the program in /proc, or uses a file there"
_LINK = "it expects the path of the home directory, which is behind a symbolic link here"
_CERTIFICATES = "truststore needs Apple's libraries for the certificates of the system"
_SHELL = "the imitation starts the program with a shell, which changes what the program inherits"

# Tests that cannot run, by file, by file and name, or with parameters.
LEFT_OUT: dict[str, str] = {
    "cli/test_error_messages.py"
    "::test_an_error_states_what_happened_and_what_to_do[TLS to a plain http server]": _CERTIFICATES,
    "cli/test_error_messages.py"
    "::test_an_error_states_what_happened_and_what_to_do[TLS to a plain http server without a scheme]": _CERTIFICATES,
    "cli/test_error_messages.py::test_the_suggested_command_contains_the_selected_profile": _CERTIFICATES,
    "commands/test_api_diff.py::test_the_file_is_read_again_from_any_directory": _LINK,
    "commands/test_batch_network.py::test_a_proxy_that_requires_a_password_or_is_unreachable_is_named": _CERTIFICATES,
    "commands/test_batch_network.py::test_responses_through_a_proxy_and_over_tls_are_the_same": _CERTIFICATES,
    "commands/test_batch_retry.py::test_the_file_is_empty_if_no_line_failed_and_replaces_an_older_one": _LINK,
    "commands/test_batch_termination.py::test_an_unusable_store_ends_the_batch": _PROC,
    "commands/test_batch_token.py::test_no_request_waits_while_the_user_types_the_password": (
        "it expects that two connections are ready in the order in which they received data, as with epoll"
    ),
    "commands/test_doctor.py::test_every_line_other_than_pass_has_a_remedy": _CERTIFICATES,
    "commands/test_exec.py::test_the_command_does_not_inherit_ignored_signals": _PROC,
    "commands/test_exec.py::test_the_token_is_never_in_argv": _PROC,
    "commands/test_log.py::test_a_symbolic_link_of_another_user_is_not_followed": _LINK,
    "commands/test_login.py::test_a_config_file_that_cannot_be_written_is_a_warning": _PROC,
    "commands/test_log.py::test_relative_files_in_a_deleted_directory_are_one_error": _SHELL,
    "commands/test_login.py::test_a_relative_path_in_a_deleted_directory_exits_with_2_before_anything_is_sent": _SHELL,
    "commands/test_login.py::test_the_flags_that_a_profile_can_contain_are_written_to_it": _LINK,
    "commands/test_login_passwords.py::test_a_password_command_is_the_same_program_in_every_directory": _LINK,
    "commands/test_login_terminal.py::test_an_unreachable_base_url_from_a_flag_ends_"
    "the_login_before_the_password_prompt": _CERTIFICATES,
    "commands/test_login_terminal.py::test_a_base_url_without_a_server_is_prompted_for_again": _CERTIFICATES,
    "commands/test_logout_locations.py"
    "::test_a_token_in_the_agent_of_another_runtime_directory_is_deleted_there": _AGENT,
    "commands/test_profile.py::test_a_relative_path_in_a_deleted_directory_exits_with_2": _SHELL,
    "commands/test_profile.py::test_a_relative_path_is_stored_as_an_absolute_path": _LINK,
    "commands/test_profile_edits.py::test_a_config_file_that_cannot_be_written_exits_with_14": _PROC,
    "commands/test_proxy.py::test_a_socket_without_a_usable_path_is_a_usage_error[in a deleted directory]": _SHELL,
    "commands/test_request_jq_processes.py::test_a_filter_that_needs_too_much_memory_is_an_error": (
        "macOS enforces no limit of the memory"
    ),
    "commands/test_request_jq_processes.py::test_all_pages_share_one_process": (
        "a process that ends the filter with xapi runs beside it where the kernel cannot do that"
    ),
    "commands/test_request_output.py::test_an_interrupted_download_leaves_no_file": _PROC,
    "hostile/test_machine.py::test_a_missing_or_foreign_home_directory_causes_no_crash": _SHELL,
    "hostile/test_machine.py::test_a_password_command_that_cannot_be_started_is_named": _SHELL,
    "journeys/test_automatic_login.py::test_a_rejected_password_is_not_sent_again_with_another_storage": _AGENT,
    "journeys/test_home_directories.py"
    "::test_a_relative_directory_in_a_deleted_one_exits_with_2_before_anything_is_sent": _SHELL,
    "journeys/test_inherited_signals.py": _SHELL,
    "journeys/test_other_users.py::test_a_link_of_another_user_in_place_of_a_state_directory_is_not_followed": _LINK,
    "journeys/test_other_users.py::test_only_files_of_xapi_are_deleted_among_expired_login_failures": (
        "it changes one of two clocks; without an ID of the boot, the younger age counts"
    ),
    "machines/test_server_kinds.py::test_a_server_with_the_other_scheme_is_an_error[rediss]": _CERTIFICATES,
    "machines/test_server_kinds.py::test_tls_is_verified": _CERTIFICATES,
}
