#compdef qwick
# Completion for zsh, made by "qwick completion zsh".
#
# _qwick_verb     each name of a verb, with the verb that it means
# _qwick_options  the long options of each verb
# _qwick_kinds    how a value is completed. Keys are an option, "VERB OPTION" if
#                 the verb differs from others, and a verb for its argument.
#                 Words: file, dir, model, template, verb; =WORD for the word
#                 itself; - for a text; ? for a value that needs "=".
# _qwick_summary  the summary of each verb
# _qwick_help     the help of each option, with keys as above

@TABLES@
# Set REPLY to the entry of an option in a table.
_qwick_entry() {
  local key="$2 $3"
  local -A table=("${(@Pkv)1}")
  if (( ${+table[$key]} )); then
    REPLY=$table[$key]
  else
    REPLY=${table[$3]-}
  fi
}

# Read letters, "-qm" or "-mNAME", of a verb. Sets want to the option that takes
# a value, and at to the place of its letter; want is empty if none does.
_qwick_letters() {
  local REPLY
  want=
  for (( at = 2; at <= ${#2}; at++ )); do
    _qwick_entry _qwick_kinds "$1" "-${2[at]}"
    if [[ -n $REPLY ]]; then
      want=-${2[at]}
      return
    fi
  done
}

# Read the words before the cursor. Sets verb (empty: it may still come), n_args,
# want (the option whose value comes next) and plain ("--" came).
_qwick_read() {
  local word REPLY
  integer at
  verb= want= plain= n_args=0
  for word in "$@"; do
    if [[ -n $want ]]; then
      want=
    elif [[ -n $plain || $word != -?* ]]; then
      if [[ -z $verb && -n $word && -n ${_qwick_verb[$word]-} ]]; then
        verb=$_qwick_verb[$word]
      else
        : ${verb:=generate}
        (( ++n_args ))
      fi
    elif [[ $word == -- ]]; then
      plain=1
      : ${verb:=generate}
    elif [[ $word == --*=* ]]; then
      continue
    elif [[ $word == --* ]]; then
      _qwick_entry _qwick_kinds "$verb" "$word"
      [[ -z $REPLY || $REPLY == \?* ]] || want=$word
    else
      _qwick_letters "$verb" "$word"
      (( at == ${#word} )) || want=
    fi
  done
}

# Look at the words before the cursor, then for the verb behind it.
_qwick_read_all() {
  local -a before after
  local waits
  before=("${(@Q)words[2,CURRENT-1]}")
  after=("${(@Q)words[CURRENT+1,-1]}")
  (( CURRENT > 2 )) || before=()
  (( CURRENT < $#words )) || after=()
  _qwick_read "${before[@]}"
  if [[ -z $verb && ( -n $want || $PREFIX == -* ) ]]; then
    waits=$want
    _qwick_read "${before[@]}" ${waits:+value} "${after[@]}"
    want=$waits plain=
  fi
}

# Offer the names of models, or their ids if the value has a slash.
_qwick_models() {
  local name id program=$words[1]
  local -a names
  program=${~program}
  (( $+commands[$program] )) || [[ -x $program ]] || program=qwick
  $program models --names --no-config </dev/null 2>/dev/null |
    while IFS=$'\t' read -r name id; do
      [[ ${(Q)PREFIX} != */* ]] || name=$id
      names+=("$name")
    done
  _wanted models expl model compadd -a names
}

# Offer the names of your prompt templates.
_qwick_templates() {
  local -a names
  names=(${XDG_CONFIG_HOME:-$HOME/.config}/qwick/prompts/*.txt(N:t:r))
  _wanted templates expl template compadd -a names
}

# Offer values of a kind.
_qwick_value() {
  local word
  local -a list expl
  integer ret=1
  for word in ${=1}; do
    case $word in
    file) _files && ret=0 ;;
    dir) _files -/ && ret=0 ;;
    model)
      _qwick_models && ret=0
      _files -g '*.gguf' && ret=0
      ;;
    template)
      _qwick_templates && ret=0
      _files -g '*.txt' && ret=0
      ;;
    verb) _qwick_verbs && ret=0 ;;
    \=*) list+=("${word#=}") ;;
    esac
  done
  if (( $#list )); then
    _wanted values expl value compadd -a list && ret=0
  fi
  return ret
}

_qwick_verbs() {
  local name
  local -a list
  for name in ${(ko)_qwick_verb}; do
    list+=("$name:$_qwick_summary[$_qwick_verb[$name]]")
  done
  _describe -t verbs verb list
}

# Offer the options of a verb. Before the verb, options of all verbs may stand:
# those that the default verb lacks are offered if none of its own begins so.
_qwick_offer_options() {
  local of=${verb:-generate} name REPLY
  local -a names list
  names=(${=_qwick_options[$of]})
  if [[ -z $verb && -z ${(M)names:#$PREFIX*} ]]; then
    names=(${(u)=_qwick_options})
  fi
  for name in $names; do
    _qwick_entry _qwick_help "$of" "$name"
    list+=("$name:$REPLY")
  done
  _describe -o option list
}

_qwick() {
  local verb want plain value REPLY
  integer n_args at
  _qwick_read_all
  if [[ -z $want && -z $plain && $PREFIX == --*=* ]]; then
    want=${PREFIX%%=*}
    compset -P '*='
  elif [[ -z $want && -z $plain && $PREFIX == -[^-]* ]]; then
    _qwick_letters "$verb" "$PREFIX"
    [[ -z $want ]] || compset -p $at
  fi
  if [[ -n $want ]]; then
    _qwick_entry _qwick_kinds "${verb:-generate}" "$want"
    _qwick_value "$REPLY"
  elif [[ -z $plain && $PREFIX == -* ]]; then
    _qwick_offer_options
  elif [[ -z $verb ]]; then
    _qwick_verbs
  elif (( n_args == 0 )); then
    _qwick_value "${_qwick_kinds[$verb]-}"
  else
    return 1
  fi
}

# As a file in $fpath, this is the body of the function; as a script that a shell
# reads, it registers the function.
if [[ ${funcstack[1]-} == _qwick ]]; then
  _qwick "$@"
else
  compdef _qwick qwick
fi
