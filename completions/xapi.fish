function __xapi_completion
    set -l line (commandline -cp)
    set -l word (string replace -r -- '^["\']' '' (commandline -ct)) # without the quote that is open
    set -l flag (string match -r -- '^--[^=]*=' "$word")
    if set -q flag[1] # request only the value of --flag=value, and put the flag before it again
        set line (string replace -r -- '=(?=[^=\s]*$)' ' ' "$line")
        set word (string replace -r -- '^--[^=]*=' '' "$word")
    end
    set -l variables _XAPI_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS="$line"
    set -l reply (env $variables xapi 2>/dev/null)
    set -l native (string split ' ' -- "$reply[1]")
    set -l candidates
    switch "$native[1]"
        case :nothing
        case ':files' ''
            set -l number 0
            set -q native[2]; and set number $native[2]
            set flag "$flag"(string sub --length $number -- "$word")
            set candidates (complete -C "'' "(string sub --start (math $number + 1) -- "$word"))
        case :command
            if test $native[2] -eq 0
                for candidate in (complete -C "$word")
                    set -l name (string split -m 1 \t -- $candidate)[1]
                    string match -q '*/*' -- $name; or command -q -- $name; and set -a candidates $candidate
                end
            else
                set -l words (commandline -opc)
                set -l first (math 0 - $native[2])
                set candidates (complete -C (string join ' ' -- (string escape -- $words[$first..-1]) "$word"))
            end
        case '*'
            set candidates $reply
    end
    for candidate in $candidates
        echo -- "$flag$candidate"
    end
end

complete --command xapi --no-files --arguments "(__xapi_completion)"
