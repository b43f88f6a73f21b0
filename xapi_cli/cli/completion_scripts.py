"""Completion scripts of `xapi` for bash, zsh and fish, in place of Typer's.

Typer's scripts do not complete `--flag=value`, the file in `name@file` or the command of `xapi exec` in any shell. In
bash they fail for `~/bin/xapi`, and print an error into the command line. In zsh, the first Tab after startup has no
effect if the script is autoloaded. In fish, they start the program twice. The variables through which a script calls
the program are Typer's, and `completion_replies` has the replies. PowerShell uses Typer's script unchanged.

In bash and zsh, the functions that install a script are not Typer's either: those of Typer rewrite the startup file of
the shell, and in zsh also add a style that changes the completion of all programs.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from xapi_cli.errors import UsageError

# `$2` is the text that bash replaces: the part of the word after the last `=` or `:`, or from the last `@` on.
_BASH = r"""_xapi_completion() {
    local IFS=$'\n' program=${1/#\~\//$HOME/} line=${COMP_LINE:0:COMP_POINT}
    local words=() starts=() last=-1 index blanks word flag= reply kind number candidate
    for ((index = 0; index <= COMP_CWORD; index++)); do # join what bash splits at `=`, `:` and `@`
        blanks=${line%%[!$' \t\n']*}
        line=${line:${#blanks}}
        word=${COMP_WORDS[index]}
        ((index == COMP_CWORD)) && word=$line
        if [[ -n $blanks || $last == -1 ]]; then
            starts[++last]=$index
            words[last]=$word
        else
            words[last]+=$word
        fi
        line=${line#"$word"}
    done
    word=${words[last]/[\'\"]/} # without the quote that is open
    local kept=${word%"$2"}
    [[ $word == --*=* ]] && flag=${word%%=*}=
    reply=$( env COMP_WORDS="${words[*]}" COMP_CWORD=$last \
        _XAPI_COMPLETE=complete_bash "$program" 2>/dev/null )
    COMPREPLY=()
    case $reply in
        :*)
            kind=${reply%% *} number=${reply##* } word=${word#"$flag"}
            ;;
        *)
            for candidate in $reply; do
                candidate=$flag$candidate
                [[ $candidate == *[=:@] ]] && compopt -o nospace 2>/dev/null # a value follows
                COMPREPLY+=("${candidate#"$kept"}")
            done
            return 0
            ;;
    esac
    case $kind in
        :files)
            flag+=${word:0:number} word=${word:number}
            while read -r candidate; do
                [[ -d $candidate ]] && candidate+=/ && compopt -o nospace 2>/dev/null
                [[ ${words[last]} == *[\'\"]* ]] || printf -v candidate %q "$candidate"
                candidate=$flag$candidate
                COMPREPLY+=("${candidate#"$kept"}")
            done < <(compgen -f -- "${word//\\/}")
            [[ -n ${COMPREPLY[0]} ]] || compopt +o default 2>/dev/null
            ;;
        :command)
            if ((number == 0)); then
                while read -r candidate; do
                    type -P -- "$candidate" >/dev/null && COMPREPLY+=("$candidate")
                done < <(compgen -c -- "$word" | sort -u)
            elif declare -F _command_offset >/dev/null; then # bash-completion is loaded
                IFS=$' \t\n'
                _command_offset "${starts[last - number]}"
            fi
            ;;
        :nothing)
            compopt +o default 2>/dev/null
            ;;
    esac
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
"""


def fix_scripts(note: Callable[[str], None]) -> None:
    """Make Typer print and install these scripts instead of its own, and *note* each change that it makes."""
    from typer import _completion_shared as shared
    from typer import completion
    from typer._completion_shared import _completion_scripts

    for shell, script in (("bash", _BASH), ("zsh", _ZSH), ("fish", _FISH)):
        _completion_scripts[shell] = script.replace("%", "%%")  # Typer formats the scripts with the % operator
    shared.install_bash, shared.install_zsh = partial(_install_bash, note), partial(_install_zsh, note)
    completion.install = partial(_install, note)  # type: ignore[attr-defined]  # Typer imports it there


def take_shells() -> None:
    """Make the options of Typer that are created from now on take the name of a shell, instead of detecting it."""
    from typer._completion_shared import Shells

    os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    Shells.__str__ = str.__str__  # type: ignore[method-assign]  # Typer prints `Shells.zsh`


def _install(note: Callable[[str], None], shell: str | None = None) -> NoReturn:
    """Install the script for *shell*, by default the current one, and end before Typer prints its own messages."""
    from typer._completion_shared import _completion_scripts, _get_shell_name, install

    name = shell or _get_shell_name()
    if name not in _completion_scripts:
        what = f"completion does not support the shell {name}" if name else "the current shell is unknown"
        raise UsageError(what, hint="name a shell: `xapi --install-completion bash`")
    _, script = install(shell=name)
    note(f"completion for {name} is installed in {script}; open a new shell to use it")
    raise SystemExit(0)


def _install_bash(note: Callable[[str], None], *, prog_name: str, complete_var: str, shell: str) -> Path:
    """Write the script, and a line to `~/.bashrc` that loads it; return the path of the script."""
    script = Path.home() / ".bash_completions" / f"{prog_name}.sh"
    _write(script, prog_name, complete_var, shell)
    _add_line(Path.home() / ".bashrc", f"source '{script}'", note)
    return script


def _install_zsh(note: Callable[[str], None], *, prog_name: str, complete_var: str, shell: str) -> Path:
    """Write the script, and a line to `~/.zshrc` that makes zsh find it; return the path of the script."""
    script = Path.home() / ".zfunc" / f"_{prog_name}"
    _write(script, prog_name, complete_var, shell)
    _add_line(Path.home() / ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit", note)
    return script


def _write(script: Path, prog_name: str, complete_var: str, shell: str) -> None:
    from typer._completion_shared import get_completion_script

    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(get_completion_script(prog_name=prog_name, complete_var=complete_var, shell=shell))


def _add_line(file: Path, line: str, note: Callable[[str], None]) -> None:
    """Append *line* to *file* unless it contains it, and *note* what was added; the rest of the file is unchanged."""
    content = file.read_bytes() if file.exists() else b""
    if line.encode() in content:
        return
    with file.open("ab") as startup:
        startup.write(b"\n" * (bool(content) and not content.endswith(b"\n")) + f"{line}\n".encode())
    note(f"added to {file}: {line}")
