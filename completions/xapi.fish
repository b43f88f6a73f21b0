function __xapi_completion
    set -l line (commandline -cp)
    set -l flag (string match -r -- '^--[^=]*=' (commandline -ct))
    if set -q flag[1] # request only the value of --flag=value, and put the flag before it again
        set line (string replace -r -- '=(?=[^=\s]*$)' ' ' "$line")
    end
    set -l variables _XAPI_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] _TYPER_COMPLETE_ARGS="$line"
    env $variables xapi 2>/dev/null | string replace -r -- '^' "$flag"
    return $pipestatus[1]
end

complete --command xapi --no-files --arguments "(__xapi_completion get-args)" --condition "__xapi_completion is-args"
