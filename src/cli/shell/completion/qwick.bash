# Completion for bash, made by "qwick completion bash".
#
# _qwick_verb     each name of a verb, with the verb that it means
# _qwick_options  the long options of each verb
# _qwick_kinds    how a value is completed. Keys are an option, "VERB OPTION" if
#                 the verb differs from others, and a verb for its argument.
#                 Words: file, dir, model, template, verb; =WORD for the word
#                 itself; - for a text; ? for a value that needs "=".

@TABLES@
# Set kind to the words of an option's value; empty: it takes none.
_qwick_kind()
{
    kind=${_qwick_kinds["$1 $2"]-${_qwick_kinds["$2"]-}}
}

# Read letters, "-qm" or "-mNAME", of a verb. Sets want to the option that takes
# a value, and at to the place behind its letter; want is empty if none does.
_qwick_letters()
{
    local kind
    want=
    for ((at = 1; at < ${#2}; at++)); do
        _qwick_kind "$1" "-${2:at:1}"
        if [[ $kind ]]; then
            want=-${2:at:1}
            ((at++))
            return
        fi
    done
}

# Read the words before the cursor. Sets verb (empty: it may still come),
# n_args, want (the option whose value comes next) and plain ("--" came).
_qwick_read()
{
    local word at kind
    verb='' want='' plain='' n_args=0
    for word in "$@"; do
        if [[ $want ]]; then
            want=
        elif [[ $plain || $word != -?* ]]; then
            if [[ ! $verb && $word && ${_qwick_verb["$word"]-} ]]; then
                verb=${_qwick_verb["$word"]}
            else
                : "${verb:=generate}"
                n_args=$((n_args + 1))
            fi
        elif [[ $word == -- ]]; then
            plain=1
            : "${verb:=generate}"
        elif [[ $word == --*=* ]]; then
            continue
        elif [[ $word == --* ]]; then
            _qwick_kind "$verb" "$word"
            [[ ! $kind || $kind == '?'* ]] || want=$word
        else
            _qwick_letters "$verb" "$word"
            ((at == ${#word})) || want=
        fi
    done
}

# Split the line into words at blanks only: bash also splits at "=" and ":". Sets
# words, cword and cur, the part of the current word before the cursor.
_qwick_split()
{
    local line=${COMP_LINE-"${COMP_WORDS[*]}"} word i
    words=() cword=0
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $line == [[:space:]]* || ! $line ]]; then
            words+=("$word")
        else
            words[${#words[@]} - 1]+=$word
        fi
        line=${line#"${line%%[![:space:]]*}"}
        line=${line#"$word"}
        ((i != COMP_CWORD)) || cword=$((${#words[@]} - 1))
    done
    cur=${words[cword]}
    # the part of the word behind the cursor
    line=${COMP_LINE-}
    line=${line:${COMP_POINT-${#line}}}
    line=${line%%[[:space:]]*}
    cur=${cur%"$line"}
}

# Offer words that begin with the value that is being written.
_qwick_offer()
{
    local word
    for word in "$@"; do
        [[ $word != "$value"* ]] || COMPREPLY+=("$word")
    done
}

# Offer the names of models, or their ids if the value has a slash. A name with
# characters that have a meaning in the shell is left out: bash quotes only some
# of them.
_qwick_models()
{
    local name id program=${words[0]/#\~\//"$HOME/"}
    type "$program" &>/dev/null || program=qwick
    while IFS=$'\t' read -r name id; do
        [[ $value != */* ]] || name=$id
        [[ $name == *[^[:alnum:]._:@/+-]* ]] || _qwick_offer "$name"
    done < <("$program" models --names --no-config </dev/null 2>/dev/null)
}

# Offer the names of your prompt templates.
_qwick_templates()
{
    local file
    for file in "${XDG_CONFIG_HOME:-$HOME/.config}"/qwick/prompts/*.txt; do
        file=${file##*/}
        file=${file%.txt}
        [[ $file == *[^[:alnum:]._+-]* ]] || _qwick_offer "$file"
    done
}

# Offer the names of files (-f) or directories (-d), or of files with a suffix.
_qwick_files()
{
    local file
    while IFS= read -r file; do
        [[ ${2-} && ( $file != *."${2-}" || -d $file ) ]] || COMPREPLY+=("$file")
    done < <(compgen "$1" -- "$value")
    # bash quotes what it takes for the name of a file
    compopt -o filenames 2>/dev/null
}

# Offer values of a kind.
_qwick_value()
{
    local kinds word
    read -ra kinds <<<"$1"
    for word in "${kinds[@]}"; do
        case $word in
        file) _qwick_files -f ;;
        dir) _qwick_files -d ;;
        model)
            _qwick_models
            _qwick_files -d
            _qwick_files -f gguf
            ;;
        template)
            _qwick_templates
            _qwick_files -d
            _qwick_files -f txt
            ;;
        verb) _qwick_offer "${!_qwick_verb[@]}" ;;
        =*) _qwick_offer "${word#=}" ;;
        esac
    done
}

# Offer the options of a verb. Before the verb, options of all verbs may stand:
# those that the default verb lacks are offered if none of its own begins so.
_qwick_offer_options()
{
    local list
    read -ra list <<<"${_qwick_options["${verb:-generate}"]}"
    _qwick_offer "${list[@]}"
    if ((${#COMPREPLY[@]} == 0)) && [[ ! $verb ]]; then
        read -ra list <<<"${_qwick_options[*]}"
        _qwick_offer "${list[@]}"
    fi
}

# Look at the words before the cursor, then for the verb behind it.
_qwick_read_all()
{
    local before=("${words[@]:1:cword-1}") waits
    _qwick_read "${before[@]}"
    if [[ ! $verb && ( $want || $cur == -* ) ]]; then
        waits=$want
        _qwick_read "${before[@]}" ${waits:+value} "${words[@]:cword+1}"
        want=$waits plain=''
    fi
}

# Replies replace only the part of the word behind the last "=" or ":", if bash
# takes these for the ends of words.
_qwick_shorten()
{
    local breaks=${COMP_WORDBREAKS//[!=:@]/} head='' i
    [[ ! $breaks ]] || head=${cur%"${cur##*[$breaks]}"}
    for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do
        COMPREPLY[i]=$fixed${COMPREPLY[i]}
        COMPREPLY[i]=${COMPREPLY[i]#"$head"}
    done
}

_qwick()
{
    local words cword cur verb want plain n_args at kind value fixed
    local IFS=$' \t\n'
    COMPREPLY=()
    _qwick_split
    _qwick_read_all
    value=$cur
    if [[ ! $want && ! $plain && $cur == --*=* ]]; then
        want=${cur%%=*}
        value=${cur#*=}
    elif [[ ! $want && ! $plain && $cur == -[!-]* ]]; then
        _qwick_letters "$verb" "$cur"
        [[ ! $want ]] || value=${cur:at}
    fi
    fixed=${cur%"$value"}
    if [[ $want ]]; then
        case $value in
        [\"\']*) value=${value:1} ;;
        *) value=${value//\\/} ;;
        esac
        _qwick_kind "${verb:-generate}" "$want"
        _qwick_value "$kind"
    elif [[ ! $plain && $cur == -* ]]; then
        _qwick_offer_options
    elif [[ ! $verb ]]; then
        _qwick_value verb
    elif ((n_args == 0)); then
        _qwick_value "${_qwick_kinds["$verb"]-}"
    fi
    _qwick_shorten
}

complete -F _qwick qwick
