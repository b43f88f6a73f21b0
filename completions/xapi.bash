_xapi_completion() {
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
    reply=$( env COMP_WORDS="${words[*]}" COMP_CWORD=$last _XAPI_AFTER_CURSOR="${COMP_LINE:COMP_POINT}" \
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
