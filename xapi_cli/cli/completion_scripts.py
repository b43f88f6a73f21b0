"""Completion scripts of `xapi` for bash, zsh and fish: fixed versions of Typer's scripts.

Typer's scripts do not complete `--flag=value` in any shell. In bash they fail for `~/bin/xapi`, and print an error into
the command line. In zsh, the first Tab after startup has no effect if the script is autoloaded. The protocol between
the scripts and the program is Typer's. PowerShell uses Typer's script unchanged.
"""

# bash splits `--flag=value` into three words, but Typer expects two. Other split words, as at `:`, are ITEMs.
_BASH = r"""_xapi_completion() {
    local IFS=$'\n' program=${1/#\~\//$HOME/} words=() position=$COMP_CWORD last= index
    for index in "${!COMP_WORDS[@]}"; do
        if [[ ${COMP_WORDS[index]} == '=' && $last == --* ]]; then
            if ((index == COMP_CWORD)); then
                words+=('')
            elif ((index < COMP_CWORD)); then
                ((position -= 1))
            fi
        else
            last=${COMP_WORDS[index]}
            words+=("$last")
        fi
    done
    COMPREPLY=( $( env COMP_WORDS="${words[*]}" \
                   COMP_CWORD=$position \
                   _XAPI_COMPLETE=complete_bash "$program" 2>/dev/null ) )
    return 0
}

complete -o default -F _xapi_completion xapi
"""

_ZSH = r"""#compdef xapi

_xapi_completion() {
  local line="${words[1,$CURRENT]}"
  if compset -P '--*='; then  # complete only the value of --flag=value
    line="${words[1,$CURRENT-1]} ${words[$CURRENT]%%=*} $PREFIX"
  fi
  eval "$(env _TYPER_COMPLETE_ARGS="$line" _XAPI_COMPLETE=complete_zsh xapi 2>/dev/null)"
}

if [[ $funcstack[1] == _xapi ]]; then  # this file is the function: zsh found it in $fpath and called it
  _xapi_completion "$@"
else
  compdef _xapi_completion xapi
fi
"""

_FISH = r"""function __xapi_completion
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
"""


def fix_scripts() -> None:
    """Make Typer print and install these scripts instead of its own."""
    from typer._completion_shared import _completion_scripts

    for shell, script in (("bash", _BASH), ("zsh", _ZSH), ("fish", _FISH)):
        _completion_scripts[shell] = script.replace("%", "%%")  # Typer formats the scripts with the % operator
