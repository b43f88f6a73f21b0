"""What differs if the agent runs the commands: each test that cannot pass then, with the reason."""

# Tests that must fail with the agent, by file and name, with their parameters.
DIFFERENCES = {
    "commands/test_profile.py::test_control_sequences_in_json_are_neutralized_and_the_json_is_equivalent[args2]": (
        "doctor reports how many commands the agent has run, which its own run changes"
    ),
}

_FILES_OF_A_WORKER = "it looks for the open files of the program in /proc, where those of a worker are"

# Tests that cannot run with the agent, by file and name.
LEFT_OUT = {
    "commands/test_request_output.py::test_an_interrupted_download_leaves_no_file": _FILES_OF_A_WORKER,
    "commands/test_request_termination.py::test_a_signal_during_startup_terminates_silently": (
        "it sends signals while the program is loading, which takes no time with the agent"
    ),
}
