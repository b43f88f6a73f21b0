"""What differs if the agent runs the commands: each test that cannot pass then, with the reason."""

# Tests that must fail with the agent, by file and name, with their parameters.
DIFFERENCES = {
    "commands/test_profile.py::test_control_sequences_in_json_are_neutralized_and_the_json_is_equivalent[args2]": (
        "doctor reports how many commands the agent has run, which its own run changes"
    ),
}

_FILES_OF_A_WORKER = "it looks for the open files of the program in /proc, where those of a worker are"
_CHILDREN_OF_A_WORKER = "it looks for the child processes of the program, which are those of a worker"

# Tests that cannot run with the agent, by file and name.
LEFT_OUT = {
    "commands/test_request_output.py::test_an_interrupted_download_leaves_no_file": _FILES_OF_A_WORKER,
    "commands/test_request_termination.py::test_a_signal_during_startup_terminates_silently": (
        "it sends signals while the program is loading, which takes no time with the agent"
    ),
    "commands/test_api.py::test_yaml_without_the_extra_is_one_error": "it hides a module that the agent has loaded",
    "commands/test_request_jq_processes.py::test_all_pages_share_one_process": _CHILDREN_OF_A_WORKER,
    "commands/test_request_jq_processes.py::test_a_signal_ends_an_endless_filter_at_once": _CHILDREN_OF_A_WORKER,
    "commands/test_request_jq_processes.py::test_a_filter_ends_when_xapi_is_killed": _CHILDREN_OF_A_WORKER,
    **dict.fromkeys(
        (
            "store/test_registry.py::test_a_storage_with_one_row_stores_a_token_shows_it_and_deletes_it",
            "store/test_registry.py::test_doctor_probes_a_storage_that_is_not_in_the_state_directory",
            "store/test_registry.py::test_help_and_errors_name_every_storage",
            "store/test_registry.py::test_a_storage_whose_packages_are_not_installed_names_the_extra",
            "machines/test_access.py::test_without_the_extra_the_error_names_the_command_that_installs_it",
        ),
        "it changes the modules of the program in its own process",
    ),
    "test_fork_server.py::test_a_fork_can_be_waited_for_and_signalled": "it kills a fork, which no agent replaces",
}

# Tests of which a run may neither be warm nor have a reason.
UNCOUNTED = {
    "journeys/test_kills.py::test_a_kill_at_a_random_moment_does_not_block_the_next_command": (
        "a command that is killed before it has sent its request sends no reason either"
    ),
}
