_xapi_completion() {
    local line=${COMP_LINE:0:COMP_POINT} words word
    read -ra words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    word=${words[-1]}
    local IFS=$'\n'
    COMPREPLY=($(env COMP_WORDS="$line" COMP_CWORD=$((${#words[@]} - 1)) \
        _XAPI_COMPLETE=complete_bash "$1" 2>/dev/null))
    [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *== ]] && compopt -o nospace # a value follows
    COMPREPLY=("${COMPREPLY[@]#"${word%"$2"}"}")
}

complete -o default -F _xapi_completion xapi
